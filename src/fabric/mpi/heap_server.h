// One-sided access to a heap by messages, for ranks that have not mapped each other's heaps. The target's program takes
// no part: its fabric's thread, or a wait of its own, serves requests.
//
// Order: the requests of one rank are carried out in the order in which they were sent, including a put's bytes. A
// request of one rank never waits for another rank's.
//
// A get reads the heap between its request and the arrival of its bytes at the requester. A concurrent write to the
// same bytes is a race of the program, which the fabric's contract forbids. Such a get returns: for up to
// kMostBytesWithin bytes, each 8 aligned bytes from before or after a write, because they are copied while the request
// is carried out; for more, each byte from before or after a write, because they are sent in place, which saves large
// gets a copy. MPI's rule that nobody modifies a buffer during a send holds for programs without such a race.
//
// Large gets are answered one at a time, in FIFO order but for the turns below, so each answer has this rank's link for
// itself. Were they answered at once, a rank that is ahead would take half of the link from one that is behind, and
// ranks that pull from each other in a circle would drift apart until half of the links are idle. A get's turn is as
// many answers after its arrival as its stream has gets before it. An answer whose rank does not take it waits for
// nobody: the next one begins beside it. So does one that has waited for `longest_wait`: from then
// on it has its part of the link, and so a sign of life of every message, however many others wait.
//
// A request that does not fit the heap or its message (fault_of_request) changes nothing and ends the run.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/mpi/bulk_transfer.h"
#include "fabric/mpi/heap_request.h"

namespace heddle {

// The bytes of a put that come behind its request. (Not a member of the server: Clang constructs no optional of a nested
// class with initialisers.)
struct PutInTransit {
  std::size_t bytes = 0;
  BulkTransfer transfer;
};

class HeapServer {
 public:
  static constexpr int kRequestTag = 0;
  static constexpr int kPayloadTag = 1;
  static constexpr int kFirstReplyTag = 2;

  // Gets the rank whose request is wrong, and the fault; throws.
  using Reject = std::function<void(int from, const std::string& fault)>;

  // Uses `messages`, a communicator of its own, until close(). No large answer waits for others for longer
  // than `longest_wait`.
  HeapServer(MPI_Comm messages, std::span<std::byte> heap, std::chrono::nanoseconds longest_wait, MpiCheck check,
             Reject reject);

  // Carries out a bounded number of received requests, and lets MPI make progress. Never blocks. One thread at a time.
  // Returns whether more requests may have arrived.
  bool serve();
  // Whether a put's bytes are in transit to this rank, or an answer from it.
  bool has_open_transfers() const { return !receiving_.empty() || !answers_.empty() || !waiting_.empty(); }
  // After the last request.
  void close();

 private:
  using Time = std::chrono::steady_clock::time_point;

  // The requests of one rank.
  struct Client {
    std::optional<PutInTransit> payload;
    std::deque<HeapMessage> later;  // in receiving_ while there are any
  };
  struct Answer {
    int to, tag;
    const std::byte* data;
    std::size_t bytes;
    std::uint64_t turn = 0;
    Time came_at{};
    std::unique_ptr<std::byte[]> copy = nullptr;  // of the bytes to send; null where they are sent in place
    BulkTransfer transfer = {};
  };

  Client& client(int rank) { return clients_[static_cast<std::size_t>(rank)]; }
  void listen();
  void carry_out(int from, const std::byte* message);
  void answer(int to, const std::byte* data, const HeapRequest& request);
  void send(Answer answer);
  void end_answers();
  void send_waiting();
  void send_waiting(std::deque<Answer>::iterator answer);
  bool end_payloads();  // whether requests that waited for them remain

  MPI_Comm messages_;
  std::span<std::byte> heap_;
  std::chrono::nanoseconds longest_wait_;
  MpiCheck check_;
  Reject reject_;
  HeapMessage next_{};
  MPI_Request incoming_ = MPI_REQUEST_NULL;  // into next_
  std::vector<Client> clients_;              // by rank
  std::vector<int> receiving_;               // clients with a payload in transit, or with requests for later
  std::vector<Answer> answers_;              // being sent
  std::deque<Answer> waiting_;               // large ones, by their turn
  std::uint64_t num_large_ = 0;              // sent so far
  std::size_t bytes_left_ = 0;               // of answers_, when that was last another number
  Time moved_at_{};
};

}  // namespace heddle
