#include "fabric/nvlink/nccl_comm.h"
#include "fabric/nvlink/peer_memory.h"

namespace heddle {
namespace {

class NcclWindows final : public PeerMemory {
 public:
  explicit NcclWindows(const PeerMemoryRequest& request)
      : comm_(*request.exchange, request.exchange->world(), request.device, request.deadline) {
    heaps_ = comm_.addresses(comm_.allocate_window(request.size_bytes));
  }

  void close() override { comm_.close(); }

 private:
  NcclComm comm_;
};

}  // namespace

std::unique_ptr<PeerMemory> map_nccl_windows(const PeerMemoryRequest& request) {
  return std::make_unique<NcclWindows>(request);
}

}  // namespace heddle
