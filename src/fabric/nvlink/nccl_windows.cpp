#include <optional>

#include "fabric/nvlink/nccl_comm.h"
#include "fabric/nvlink/peer_memory.h"

namespace heddle {
namespace {

class NcclWindows final : public PeerMemory {
 public:
  explicit NcclWindows(const PeerMemoryRequest& request) : request_(request) {}

  void map() override {
    comm_.emplace(*request_.exchange, request_.exchange->world(), request_.device, request_.deadline);
    heaps_ = comm_->addresses(comm_->allocate_window(request_.size_bytes));
    request_.exchange->meet(request_.exchange->world(), "windows mapped");
  }
  void close() override { comm_->close(); }
  void abandon() override {
    if (comm_) comm_->abort();
  }

 private:
  PeerMemoryRequest request_;
  std::optional<NcclComm> comm_;
};

}  // namespace

std::unique_ptr<PeerMemory> nccl_windows(const PeerMemoryRequest& request) {
  return std::make_unique<NcclWindows>(request);
}

}  // namespace heddle
