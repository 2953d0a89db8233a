// Replaces nccl_windows.cpp and nccl_collectives.cpp in a build without NCCL's headers.
#include "base/error.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/nvlink/peer_memory.h"

namespace heddle {

std::unique_ptr<PeerMemory> nccl_windows(const PeerMemoryRequest&) {
  throw_error<Failure>("this build has no NCCL: build it where nccl.h and nccl_device.h are, or use cuda_ipc");
}

bool nccl_available() {
  return false;
}

std::unique_ptr<VendorCollectives> open_nccl(Fabric& fabric, std::span<const int>) {
  throw_error<InvalidArgument>("NCCL's collectives on {}: this build has no NCCL", fabric.name());
}

}  // namespace heddle
