// How operators launch their kernels: one after the other in a stream, each allowed to start before the one ahead of it
// has ended (programmatic dependent launch), so that what it needs of weights is on its way when its input is ready.
//
// Every kernel of a step keeps to two rules. It calls wait_for_earlier_kernels() in every thread before it touches
// anything that a kernel writes, and before it ends; before that it may read weights, which nobody writes. And it calls
// let_later_kernels_start() once it holds what it needs of the SM, or later where the memory traffic of the next one
// would be in its way: this makes nothing visible, the later kernel's own wait does, which returns when this
// kernel has ended. So a kernel sees all that any earlier one wrote.
//
// Two exceptions, where the caller says OlderKeys::in_place (paged_kv.h): older keys and the step's arrays are read
// before the wait; and attention's plan is written and read before it (attention_decode_plan_sm90.cu). The kernel that
// writes it fences what it wrote, and only then lets later ones start, which read it past their first-level cache.
#pragma once

#include <cuda_runtime_api.h>

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

// How a grid comes to fit the lane: no kernel takes more SMs than the lane has.
enum class GridFit {
  by_caller,  // the caller sizes it by lane.num_sms
  resident,  // likewise, and its blocks wait for each other: all of them must find room at once, on a whole device, too
  trimmed,   // blocks go on to x + gridDim.x and y + gridDim.y; where the lane has not the whole device, the launch
             // takes as many as its SMs hold. A whole device takes the grid as it is: its blocks come one after the
             // other at no cost
};

// Whether a kernel of GridFit::trimmed goes on. Where it is of every layer and the loop costs registers, a version
// without it takes the whole device, whose grids are not trimmed.
enum class Turns { one, many };

inline Turns turns_on(const Lane& lane) {
  return lane.num_other_sms() == 0 ? Turns::one : Turns::many;
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks of a cluster, along x
  bool programmatic = true;      // whether it may start before the kernel ahead has ended (PDL)
  GridFit fit = GridFit::by_caller;
};

// What every kernel is allowed before its first launch on a device: as much shared memory and as large a cluster as the
// device has, so that no later launch has to ask for more. Throws Failure that names `op` when CUDA refuses. The device
// is the current one.
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
    // All kernels ask for the same division of an SM's memory. Where one differs from the kernel ahead, the SM drains
    // before it starts: on an H200 that took 1.9 ms of a 6.1 ms decode step.
    if (error == cudaSuccess)
      error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) throw_cuda_error(fmt::format("{}: cannot prepare for {}", op, name_of(device)), error);
  });
}

// Of this kernel, with so many threads and bytes of dynamic shared memory, once it is prepared: asked of the driver
// once for each. Throws Failure that names `op` when CUDA refuses. The device is the current one.
inline int blocks_of_sm(const char* op, const void* kernel, const LaunchShape& shape, Device device) {
  static std::mutex mutex;
  static std::map<std::tuple<const void*, int, unsigned, std::size_t>, int> known;
  const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
  const std::scoped_lock lock(mutex);
  const auto [place, is_new] = known.try_emplace({kernel, device.index, threads, shape.shared_bytes}, 0);
  if (!is_new) return place->second;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &place->second, kernel, static_cast<int>(threads), shape.shared_bytes);
  if (error == cudaSuccess) return place->second;
  known.erase(place);
  throw_cuda_error(fmt::format("{}: cannot ask {} for room", op, name_of(device)), error);
}

// Clusters of this shape that the whole device holds at a time, once the kernel is prepared; 0 where it has no such
// clusters. Throws nothing.
inline int clusters_of_device(const char* op, const void* kernel, const LaunchShape& shape, Device device) {
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
}

// The grid to launch on the lane: shape.grid, or what of it the lane's SMs hold. Throws InvalidArgument where the
// caller has asked for more than that.
inline dim3 grid_on(const char* op, const void* kernel, const LaunchShape& shape, const Lane& lane) {
  if (shape.fit != GridFit::resident && lane.num_other_sms() == 0) return shape.grid;
  const Device device = lane.stream.device();
  const unsigned most = most_blocks(lane.num_sms, blocks_of_sm(op, kernel, shape, device), shape.cluster);
  const GridSize wanted{shape.grid.x, shape.grid.y};
  if (shape.fit == GridFit::trimmed) {
    const GridSize grid = grid_within(wanted, shape.cluster, most);
    return {grid.x, grid.y};
  }
  require(wanted.blocks() * shape.grid.z <= most, "{}: a grid of {} x {} x {} blocks on {} SMs, which hold {}", op,
          shape.grid.x, shape.grid.y, shape.grid.z, lane.num_sms, most);
  return shape.grid;
}

// Enqueues `kernel` on the lane's stream, a CUDA stream. Throws Failure that names `op` when CUDA refuses,
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
  config.attrs = shape.programmatic ? attributes : attributes + 1;
  config.numAttrs = (shape.programmatic ? 1 : 0) + (shape.cluster > 1 ? 1 : 0);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
  if (error != cudaSuccess) throw_cuda_error(fmt::format("{}: cannot launch on {}", op, name_of(device)), error);
}

}  // namespace heddle
