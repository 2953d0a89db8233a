// One-sided access to a heap by messages, for ranks that have not mapped each other's heaps: the requests, and the
// server at the target. The target's program takes no part: a thread of its fabric, or its own waits, serve requests.
//
// Order: requests of one rank are carried out one after the other, in the order in which they were sent, including the
// bytes of puts. Requests of different ranks do not wait for each other.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace heddle {

// The front of a message with tag kRequestTag. Plain data; ranks are machines of one byte order.
struct HeapRequest {
  enum Kind : std::uint32_t {
    put,         // of `bytes`, which follow in this message
    put_behind,  // of `bytes`, which follow in a message with tag kPayloadTag
    get,         // of `bytes`, in a message with reply_tag
    set,         // the flag to `value`: a release
    add,         // `value` to the flag: a release
    tell         // by an empty message with reply_tag that all before is done
  };

  Kind kind = put;
  std::int32_t reply_tag = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;
};

// The size up to which Open MPI sends eagerly on all its networks.
inline constexpr std::size_t kHeapMessageBytes = 4000;
inline constexpr std::size_t kMostBytesWithin = kHeapMessageBytes - sizeof(HeapRequest);
using HeapMessage = std::array<std::byte, kHeapMessageBytes>;

class HeapServer {
 public:
  static constexpr int kRequestTag = 0;
  static constexpr int kPayloadTag = 1;
  static constexpr int kFirstReplyTag = 2;

  // Is told an MPI call's name, its code, and the rank that it has to do with (-1: any); throws unless it is
  // MPI_SUCCESS.
  using Check = std::function<void(const char* call, int code, int peer)>;

  // Uses `messages`, a communicator of its own, until close().
  HeapServer(MPI_Comm messages, std::byte* heap, Check check);

  // Carries out the requests that have come and lets MPI make progress. Never waits. Not for two threads at once.
  void serve();
  // Whether the bytes of a put or an answer are in flight.
  bool has_open_transfers() const { return !receiving_.empty() || !answers_.empty(); }
  // After the last request.
  void close();

 private:
  // The requests of one rank.
  struct Client {
    MPI_Request payload = MPI_REQUEST_NULL;  // of the put that is under way, and before
    std::deque<HeapMessage> later;
  };

  Client& client(int rank) { return clients_[static_cast<std::size_t>(rank)]; }
  void listen();
  void carry_out(int from, const std::byte* message);
  void answer(int to, const std::byte* data, std::size_t bytes, int tag);
  void end_answers();
  void end_payloads();

  MPI_Comm messages_;
  std::byte* heap_;
  Check check_;
  HeapMessage next_{};
  MPI_Request incoming_ = MPI_REQUEST_NULL;  // into next_
  std::vector<Client> clients_;              // by rank
  std::vector<int> receiving_;               // clients with a payload under way
  std::vector<MPI_Request> answers_;
};

}  // namespace heddle
