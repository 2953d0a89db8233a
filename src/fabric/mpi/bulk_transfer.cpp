#include "fabric/mpi/bulk_transfer.h"

#include <algorithm>

#include "base/checked.h"
#include "fabric/mpi/heap_request.h"

namespace heddle {

void BulkTransfer::cut(int peer, std::size_t bytes, FunctionRef<void(std::size_t, int, MPI_Request&)> post) {
  peer_ = peer;
  bytes_left_ = bytes;
  messages_.resize(std::max<std::size_t>(1, ceil_div(bytes, kBulkMessageBytes)), MPI_REQUEST_NULL);
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    const std::size_t offset = i * kBulkMessageBytes;
    post(offset, static_cast<int>(std::min(kBulkMessageBytes, bytes - offset)), messages_[i]);
  }
}

void BulkTransfer::send(MPI_Comm messages, int to, int tag, const std::byte* data, std::size_t bytes,
                        const MpiCheck& check) {
  cut(to, bytes, [&](std::size_t offset, int size, MPI_Request& message) {
    check("MPI_Isend", MPI_Isend(bytes == 0 ? data : data + offset, size, MPI_BYTE, to, tag, messages, &message), to);
  });
}

void BulkTransfer::receive(MPI_Comm messages, int from, int tag, std::byte* data, std::size_t bytes,
                           const MpiCheck& check) {
  cut(from, bytes, [&](std::size_t offset, int size, MPI_Request& message) {
    check("MPI_Irecv", MPI_Irecv(bytes == 0 ? data : data + offset, size, MPI_BYTE, from, tag, messages, &message),
          from);
  });
}

bool BulkTransfer::test(const MpiCheck& check) {
  for (; num_done_ < messages_.size(); ++num_done_) {
    int done = 0;
    MPI_Status status;
    check("MPI_Test", MPI_Test(&messages_[num_done_], &done, &status), peer_);
    if (done == 0) return false;
    int come = 0;
    MPI_Get_count(&status, MPI_BYTE, &come);
    bytes_come_ += static_cast<std::size_t>(come);
    bytes_left_ -= std::min(bytes_left_, kBulkMessageBytes);
  }
  return true;
}

}  // namespace heddle
