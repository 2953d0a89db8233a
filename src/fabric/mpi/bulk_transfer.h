// The bytes of one request (heap_request.h) on their way between two ranks: messages of one tag, kBulkMessageBytes each
// but the last. MPI keeps the order of the messages that one rank sends to another with one tag, so they carry no
// numbers: sender and receiver cut alike.
//
// Each is small enough to be sent at once. A larger message would first ask its receiver, and the link would be idle
// for the time of that answer, before every put and get.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace heddle {

// Gets an MPI call's name, its code, and the rank that it concerns (-1: any); throws unless the code is MPI_SUCCESS.
using MpiCheck = std::function<void(const char* call, int code, int peer)>;

class BulkTransfer {
 public:
  // Each posts all messages and returns; of 0 bytes, one empty message. Once for a transfer.
  void send(MPI_Comm messages, int to, int tag, const std::byte* data, std::size_t bytes, const MpiCheck& check);
  void receive(MPI_Comm messages, int from, int tag, std::byte* data, std::size_t bytes, const MpiCheck& check);
  // As send(), but posts a few messages ahead of those that have left, and the others in test(). What this rank sends to the
  // same peer later goes over the same connection, and so waits for a few and not for all.
  void send_in_turn(MPI_Comm messages, int to, int tag, const std::byte* data, std::size_t bytes,
                    const MpiCheck& check);

  // Whether all messages are done: `data` may be overwritten, or read. Tests them in their order, and so lets MPI make
  // progress.
  bool test(const MpiCheck& check);
  // Of the messages that no test has found done.
  std::size_t bytes_left() const { return bytes_left_; }
  // Fewer than `bytes` where a message that was received is shorter than agreed.
  std::size_t bytes_come() const { return bytes_come_; }

 private:
  struct Source {
    MPI_Comm messages = MPI_COMM_NULL;
    int tag = 0;
    const std::byte* data = nullptr;
  };

  void cut(int peer, std::size_t bytes);
  int size_of(std::size_t message) const;
  void post_sends(std::size_t end, const MpiCheck& check);  // of the messages before `end`

  int peer_ = -1;
  std::size_t bytes_ = 0, bytes_left_ = 0, bytes_come_ = 0;
  Source source_;  // of what is sent
  std::size_t num_done_ = 0, num_posted_ = 0;
  std::size_t most_ahead_ = 2;  // messages that are posted and not done; twice as many whenever there were none left
  std::vector<MPI_Request> messages_;
};

}  // namespace heddle
