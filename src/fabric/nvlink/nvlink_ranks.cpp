#include "fabric/nvlink/nvlink_ranks.h"

#include <cstdlib>

#include "base/error.h"
#include "fabric/nvlink/cuda_call.h"
#include "fabric/shm/processes.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

FabricOptions host_options(int world_size, const NvlinkOptions& options) {
  return {.heap_bytes = nvlink_host_heap_bytes(world_size), .deadline = options.fabric.deadline};
}

// A GPU for each rank; NCCL takes no two ranks on one, and then says so.
int device_of(int local_rank, PeerMemoryKind memory) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error != cudaSuccess || count == 0 || memory == PeerMemoryKind::nccl_windows) return local_rank;
  return local_rank % count;
}

}  // namespace

NvlinkThreads::NvlinkThreads(int world_size, const NvlinkOptions& options)
    : hosts_(std::make_unique<ShmThreads>(world_size, host_options(world_size, options))), options_(options) {
  // Loading a kernel at its first launch takes memory of its GPU, which is mapped into the peers', and that may wait
  // for their kernels, which wait for this one. CUDA reads this when it starts, hence before any rank.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

NvlinkThreads::~NvlinkThreads() = default;

std::unique_ptr<Fabric> NvlinkThreads::rank(int rank) {
  return open_nvlink(hosts_->rank(rank), device_of(rank, options_.memory), options_);
}

std::unique_ptr<Fabric> join_nvlink_processes(const Launch& launch, const NvlinkOptions& options) {
  return open_nvlink(join_shm_processes(launch, host_options(launch.world_size, options)),
                     device_of(launch.local_rank, options.memory), options);
}

}  // namespace heddle
