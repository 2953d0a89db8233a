// How operators launch their kernels: in stream order, on a lane with the whole device by programmatic dependent launch
// (PDL). A kernel may then start before the kernel ahead has ended, so that it loads weights while its input is still
// being computed.
//
// Every kernel of a step keeps two rules. Every thread calls wait_for_earlier_kernels() before it accesses anything
// that a kernel writes, and before it exits; before that it may read weights, which no kernel writes. And the kernel
// calls let_later_kernels_start() when it holds all its resources of the SM, or later where the next kernel's memory
// traffic would disturb it. That call makes no writes visible. The later kernel's own wait does: it returns when this
// kernel has ended. So a kernel sees the writes of all earlier kernels.
//
// There are two exceptions with OlderKeys::in_place (paged_kv.h). Older keys and the step's arrays are read before the
// wait. Attention's plan is written and read before it (attention_decode_plan_sm90.cu): its kernel fences its writes
// before it lets later kernels start, and those read the plan past their L1 cache.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/cuda_call.h"
#include "base/device.h"
#include "base/lane.h"
#include "device/grid_within.h"
#include "device/prepared_kernels.h"

namespace heddle {

__device__ inline void wait_for_earlier_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void let_later_kernels_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// How a grid fits the lane: no kernel takes more SMs than the lane has.
enum class GridFit {
  by_caller,  // the caller sizes it by lane.num_sms
  // The same, and blocks wait for each other: all of them must be resident at once, on a whole device too. Which SMs a
  // part of a device has is not known here, so its callers choose clusters that fit on any (free_cluster.h).
  resident,
  // Blocks loop to x + gridDim.x and y + gridDim.y. On a lane with part of the device, the launch takes as many blocks
  // as the lane's SMs hold. A whole device takes the grid as it is, because scheduling its blocks one after the other
  // costs nothing.
  trimmed,
};

// Whether the blocks of a GridFit::trimmed kernel loop. A kernel of every layer, where the loop costs registers, has a
// version without the loop for the whole device.
enum class Passes { one, many };

inline Passes passes_on(const Lane& lane) {
  return lane.num_other_sms() == 0 ? Passes::one : Passes::many;
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks of a cluster, along x
  bool programmatic = true;      // whether it may start before the kernel ahead has ended (PDL); on whole devices alone
  GridFit fit = GridFit::by_caller;
};

// Before a kernel's first launch on a device, allows it as much shared memory and as large a cluster as the device has,
// so that no launch sets attributes again. The device is the current one. Throws Failure that names `op` when CUDA
// reports an error.
inline void prepare_kernel(const char* op, const void* kernel, Device device) {
  static PreparedKernels prepared;
  prepared.once(kernel, device.index, [&] {
    int most_shared = 0;
    cudaFuncAttributes found{};
    cudaError_t error = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index);
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&found, kernel);
    const int dynamic = most_shared - static_cast<int>(found.sharedSizeBytes);
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic);
    // All kernels request the same carveout of an SM's L1 cache. Where it differs from the kernel ahead, the SM drains
    // before the kernel starts: on an H200 that took 1.9 ms of a 6.1 ms decode step.
    if (error == cudaSuccess)
      error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) throw_cuda_error(fmt::format("{}: cannot prepare for {}", op, name_of(device)), error);
  });
}

// What the driver says of kernels' occupancy. It is queried once for each kernel, device, block and cluster; an answer
// of 0, which may be due to an error, is not kept.
class Occupancies {
 public:
  template <class Query>
  int get(const void* kernel, const LaunchShape& shape, Device device, const Query& query) {
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    const std::tuple key{kernel, device.index, threads, shape.shared_bytes, shape.cluster};
    const std::scoped_lock lock(mutex_);
    if (const auto place = known_.find(key); place != known_.end()) return place->second;
    const int found = query();
    if (found > 0) known_.emplace(key, found);
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<const void*, int, unsigned, std::size_t, unsigned>, int> known_;
};

// How many blocks of a prepared kernel an SM holds. The device is the current one. Throws Failure that names `op` when
// CUDA reports an error.
inline int blocks_of_sm(const char* op, const void* kernel, const LaunchShape& shape, Device device) {
  static Occupancies known;
  return known.get(kernel, shape, device, [&] {
    int blocks = 0;
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel, static_cast<int>(shape.block.x * shape.block.y * shape.block.z), shape.shared_bytes);
    if (error != cudaSuccess)
      throw_cuda_error(fmt::format("{}: cannot query the occupancy on {}", op, name_of(device)), error);
    return blocks;
  });
}

// How many clusters of this shape are resident on the whole device at once; 0 where it has no such clusters.
inline int clusters_of_device(const char* op, const void* kernel, const LaunchShape& shape, Device device) {
  static Occupancies known;
  return known.get(kernel, shape, device, [&] {
    const CurrentDevice current(device.index);
    prepare_kernel(op, kernel, device);
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {shape.cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(shape.cluster);
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess) return clusters;
    cudaGetLastError();  // of a device that has no such clusters
    return 0;
  });
}

// How many clusters of a kernel whose blocks take an SM each the lane holds at once; at least one, the smallest grid.
inline int clusters_on(const char* op, const void* kernel, const LaunchShape& shape, const Lane& lane) {
  const int clusters = std::max(1, lane.num_sms / static_cast<int>(shape.cluster));
  if (shape.cluster == 1) return clusters;
  return std::clamp(clusters_of_device(op, kernel, shape, lane.stream.device()), 1, clusters);
}

// The grid to launch on the lane: shape.grid, or the part of it that the lane's SMs hold. Throws InvalidArgument where
// a grid that may not be trimmed is larger than that.
inline dim3 grid_on(const char* op, const void* kernel, const LaunchShape& shape, const Lane& lane) {
  if (shape.fit != GridFit::resident && lane.num_other_sms() == 0) return shape.grid;
  const Device device = lane.stream.device();
  unsigned most = most_blocks(lane.num_sms, blocks_of_sm(op, kernel, shape, device), shape.cluster);
  if (shape.fit == GridFit::resident && shape.cluster > 1)
    most = most_in_clusters(most, shape.cluster, clusters_of_device(op, kernel, shape, device));
  const GridSize wanted{shape.grid.x, shape.grid.y};
  if (shape.fit == GridFit::trimmed) {
    const GridSize grid = grid_within(wanted, shape.cluster, most);
    return {grid.x, grid.y};
  }
  require(wanted.blocks() * shape.grid.z <= most, "{}: a grid of {} x {} x {} blocks on {} SMs, which hold {}", op,
          shape.grid.x, shape.grid.y, shape.grid.z, lane.num_sms, most);
  return shape.grid;
}

// Enqueues `kernel` on the lane's CUDA stream. Throws Failure that names `op` when CUDA reports an error,
// InvalidArgument where the grid is larger than the lane.
template <class... Params, class... Args>
void launch_sm90(const char* op, void (*kernel)(Params...), const LaunchShape& shape, const Lane& lane,
                 Args&&... args) {
  const Device device = lane.stream.device();
  const CurrentDevice current(device.index);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  prepare_kernel(op, reinterpret_cast<const void*>(kernel), device);
  cudaLaunchConfig_t config{};
  config.gridDim = grid_on(op, reinterpret_cast<const void*>(kernel), shape, lane);
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(lane.stream.native());
  // Where others hold SMs, a kernel that starts early may hold those that the others need to end.
  const bool programmatic = shape.programmatic && lane.num_other_sms() == 0;
  config.attrs = programmatic ? attributes : attributes + 1;
  config.numAttrs = (programmatic ? 1 : 0) + (shape.cluster > 1 ? 1 : 0);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
  if (error != cudaSuccess) throw_cuda_error(fmt::format("{}: cannot launch on {}", op, name_of(device)), error);
}

}  // namespace heddle
