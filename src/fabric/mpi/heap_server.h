// One-sided access to a heap by messages, for ranks that have not mapped each other's: what a rank asks of another's
// heap, and who answers there. The other's program takes no part: its fabric's thread, or a wait of its own, serves.
//
// Order: the requests of one rank are carried out one after the other, in the order in which they were sent, a put's
// bytes included. A request of one rank never waits for another rank's.
//
// A get reads the heap between its request and the arrival of its bytes at the rank that asked. Writes to the same bytes
// meanwhile, by this rank or by another's put or signal, are the program's race: the fabric's contract has the program
// order them. What such a get gives: up to kMostBytesWithin bytes are copied while the request is carried out, so that
// each 8 aligned bytes are those of before or of after a write. More are sent from where they lie, as a copy would cost
// large gets time and memory; each of their bytes may be an old or a new one. MPI's rule that nobody modifies what is
// being sent holds for programs without such a race: who writes after a get has ended finds its bytes already sent.
//
// A request that does not fit the heap or its message (fault_of_request) touches nothing: it is the end of the run.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/mpi/heap_request.h"

namespace heddle {

class HeapServer {
 public:
  static constexpr int kRequestTag = 0;
  static constexpr int kPayloadTag = 1;
  static constexpr int kFirstReplyTag = 2;

  // Is told an MPI call's name, its code, and the rank that it has to do with (-1: any); throws unless it is MPI_SUCCESS.
  using Check = std::function<void(const char* call, int code, int peer)>;
  // Is told which rank's request is wrong, and what is; throws.
  using Reject = std::function<void(int from, const std::string& fault)>;

  // Uses `messages`, a communicator of its own, until close().
  HeapServer(MPI_Comm messages, std::span<std::byte> heap, Check check, Reject reject);

  // Carries out what has come, a bounded number of requests, and lets MPI make progress. Never waits for anybody. Not by
  // two threads at once. Returns whether more may have come.
  bool serve();
  // Whether a put's bytes are on their way to here, or an answer from here.
  bool has_open_transfers() const { return !receiving_.empty() || !answers_.empty(); }
  // After the last request.
  void close();

 private:
  // What one rank has asked for.
  struct Client {
    MPI_Request payload = MPI_REQUEST_NULL;  // of the put that is under way, and before
    std::size_t payload_bytes = 0;
    std::deque<HeapMessage> later;  // in receiving_ while there are any
  };
  struct Answer {
    MPI_Request sent = MPI_REQUEST_NULL;
    std::unique_ptr<std::byte[]> copy;  // of what is sent; null where that lies in the heap
  };

  Client& client(int rank) { return clients_[static_cast<std::size_t>(rank)]; }
  void listen();
  void carry_out(int from, const std::byte* message);
  void answer(int to, const std::byte* data, std::size_t bytes, int tag);
  void end_answers();
  bool end_payloads();  // whether requests that waited for them are left

  MPI_Comm messages_;
  std::span<std::byte> heap_;
  Check check_;
  Reject reject_;
  HeapMessage next_{};
  MPI_Request incoming_ = MPI_REQUEST_NULL;  // into next_
  std::vector<Client> clients_;              // by rank
  std::vector<int> receiving_;               // clients with a payload under way, or with requests for later
  std::vector<Answer> answers_;
};

}  // namespace heddle
