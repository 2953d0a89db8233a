#include "fabric/mpi/bulk_transfer.h"

#include <algorithm>

#include "base/checked.h"
#include "fabric/mpi/heap_request.h"

namespace heddle {

void BulkTransfer::cut(int peer, std::size_t bytes) {
  peer_ = peer;
  bytes_ = bytes_left_ = bytes;
  messages_.resize(std::max<std::size_t>(1, ceil_div(bytes, kBulkMessageBytes)), MPI_REQUEST_NULL);
}

int BulkTransfer::size_of(std::size_t message) const {
  return static_cast<int>(std::min(kBulkMessageBytes, bytes_ - message * kBulkMessageBytes));
}

void BulkTransfer::post_sends(std::size_t end, const MpiCheck& check) {
  for (; num_posted_ < std::min(end, messages_.size()); ++num_posted_) {
    const std::byte* const data = bytes_ == 0 ? source_.data : source_.data + num_posted_ * kBulkMessageBytes;
    check(
        "MPI_Isend",
        MPI_Isend(data, size_of(num_posted_), MPI_BYTE, peer_, source_.tag, source_.messages, &messages_[num_posted_]),
        peer_);
  }
}

void BulkTransfer::send(MPI_Comm messages, int to, int tag, const std::byte* data, std::size_t bytes,
                        const MpiCheck& check) {
  cut(to, bytes);
  source_ = {messages, tag, data};
  post_sends(messages_.size(), check);
}

void BulkTransfer::send_in_turn(MPI_Comm messages, int to, int tag, const std::byte* data, std::size_t bytes,
                                const MpiCheck& check) {
  cut(to, bytes);
  source_ = {messages, tag, data};
  post_sends(most_ahead_, check);
}

void BulkTransfer::receive(MPI_Comm messages, int from, int tag, std::byte* data, std::size_t bytes,
                           const MpiCheck& check) {
  cut(from, bytes);
  for (; num_posted_ < messages_.size(); ++num_posted_) {
    std::byte* const to = bytes == 0 ? data : data + num_posted_ * kBulkMessageBytes;
    check("MPI_Irecv", MPI_Irecv(to, size_of(num_posted_), MPI_BYTE, from, tag, messages, &messages_[num_posted_]),
          from);
  }
}

bool BulkTransfer::test(const MpiCheck& check) {
  while (num_done_ < messages_.size()) {
    if (num_done_ == num_posted_) {
      most_ahead_ *= 2;
      post_sends(num_done_ + most_ahead_, check);
    }
    int done = 0;
    MPI_Status status;
    check("MPI_Test", MPI_Test(&messages_[num_done_], &done, &status), peer_);
    if (done == 0) {
      post_sends(num_done_ + most_ahead_, check);
      return false;
    }
    int come = 0;
    MPI_Get_count(&status, MPI_BYTE, &come);
    bytes_come_ += static_cast<std::size_t>(come);
    bytes_left_ -= std::min(bytes_left_, kBulkMessageBytes);
    ++num_done_;
  }
  return true;
}

}  // namespace heddle
