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

#include "base/function_ref.h"

namespace heddle {

// Gets an MPI call's name, its code, and the rank that it concerns (-1: any); throws unless the code is MPI_SUCCESS.
using MpiCheck = std::function<void(const char* call, int code, int peer)>;

class BulkTransfer {
 public:
  // Each posts all messages and returns; of 0 bytes, one empty message. Once for a transfer.
  void send(MPI_Comm messages, int to, int tag, const std::byte* data, std::size_t bytes, const MpiCheck& check);
  void receive(MPI_Comm messages, int from, int tag, std::byte* data, std::size_t bytes, const MpiCheck& check);

  // Whether all messages are done: `data` may be overwritten, or read. Tests them in their order, and so lets MPI make
  // progress.
  bool test(const MpiCheck& check);
  // Of the messages that no test has found done.
  std::size_t bytes_left() const { return bytes_left_; }
  // Fewer than `bytes` where a message that was received is shorter than agreed.
  std::size_t bytes_come() const { return bytes_come_; }

 private:
  // Calls post(offset, bytes, request) for each message.
  void cut(int peer, std::size_t bytes, FunctionRef<void(std::size_t, int, MPI_Request&)> post);

  int peer_ = -1;
  std::size_t bytes_left_ = 0, bytes_come_ = 0;
  std::size_t num_done_ = 0;
  std::vector<MPI_Request> messages_;
};

}  // namespace heddle
