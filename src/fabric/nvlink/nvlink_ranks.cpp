#include "fabric/nvlink/nvlink_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/cuda_call.h"
#include "base/error.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/shm/processes.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

// A driver that has just started takes seconds to make a GPU ready, and processes wait for each other there. A caller
// who says how long may take less.
constexpr std::chrono::seconds kLeastToJoin{60};

FabricOptions host_options(int world_size, const NvlinkOptions& options) {
  return {.heap_bytes = nvlink_host_heap_bytes(world_size),
          .deadline = options.fabric.deadline,
          .join_deadline = options.fabric.join_deadline.count() > 0
                               ? options.fabric.join_deadline
                               : std::max<std::chrono::nanoseconds>(options.fabric.deadline, kLeastToJoin),
          .first_rank = options.fabric.first_rank};
}

// Before a rank waits for another, all that is slow the first time: the GPU's context with all its kernels, and NCCL.
// What is wrong with a GPU is said when the fabric is opened on it.
void warm_up(int first_device, int num_devices, PeerMemoryKind memory) {
  prepare_shared_gpu();
  int former = 0, count = 0;
  const bool any = cudaGetDevice(&former) == cudaSuccess && cudaGetDeviceCount(&count) == cudaSuccess;
  for (int device = first_device; any && device < std::min(first_device + num_devices, count); ++device)
    if (cudaSetDevice(device) == cudaSuccess) cudaFree(nullptr);
  if (any) cudaSetDevice(former);
  cudaGetLastError();
  if (memory == PeerMemoryKind::nccl_windows) static_cast<void>(nccl_available());
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

// Loading a kernel at its first launch takes memory of its GPU, which is mapped into the peers', and that may wait for
// their kernels, which wait for this one.
//
// Streams beyond the number of hardware queues share one, in which a kernel that waits for a peer would hold up the
// peer's; 32 is the most.
void prepare_shared_gpu() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

NvlinkThreads::NvlinkThreads(int world_size, const NvlinkOptions& options, std::vector<int> devices)
    : hosts_(std::make_unique<ShmThreads>(world_size, host_options(world_size, options))),
      options_(options),
      devices_(std::move(devices)) {
  require(devices_.empty() || devices_.size() == static_cast<std::size_t>(world_size),
          "nvlink: {} devices for {} ranks", devices_.size(), world_size);
  const int most = devices_.empty() ? world_size - 1 : *std::max_element(devices_.begin(), devices_.end());
  warm_up(0, most + 1, options.memory);
}

NvlinkThreads::~NvlinkThreads() = default;

std::unique_ptr<Fabric> NvlinkThreads::rank(int rank) {
  const int device = devices_.empty() ? device_of(rank, options_.memory) : devices_.at(static_cast<std::size_t>(rank));
  return open_nvlink(hosts_->rank(rank), device, options_);
}

std::unique_ptr<Fabric> join_nvlink_processes(const Launch& launch, const NvlinkOptions& options) {
  prepare_shared_gpu();
  const int device = device_of(launch.local_rank, options.memory);
  warm_up(device, 1, options.memory);
  return open_nvlink(join_shm_processes(launch, host_options(launch.world_size, options)), device, options);
}

}  // namespace heddle
