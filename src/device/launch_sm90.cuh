// How operators launch their kernels: one after the other in a stream, each allowed to start before the one ahead of it
// has ended (programmatic dependent launch), so that what it needs of weights is on its way when its input is ready.
//
// Every kernel of a step keeps to two rules. It calls wait_for_earlier_kernels() in every thread before it touches
// anything that a kernel writes, and before it ends; before that it may read weights, which nobody writes. And it calls
// let_later_kernels_start() once it holds what it needs of the multiprocessor, or later where what the next one asks of
// memory would be in its way: this makes nothing visible, the later kernel's own wait does, which returns when this
// kernel has ended. So a kernel sees all that any earlier one wrote.
//
// Two exceptions, where the caller says OlderKeys::in_place (paged_kv.h): older keys and the step's arrays are read
// before the wait; and attention's plan is written and read before it (attention_decode_plan_sm90.cu). The kernel that
// writes it fences what it wrote, and only then lets later ones start, which read it past their first-level cache.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/cuda_call.h"
#include "base/device.h"
#include "base/stream.h"
#include "device/prepared_kernels.h"

namespace heddle {

__device__ inline void wait_for_earlier_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void let_later_kernels_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks of a cluster, along x
  bool programmatic = true;      // whether it may start before the kernel ahead has ended (PDL)
};

// Throws Failure that names `op` when CUDA refuses.
inline int num_multiprocessors(const char* op, Device device) {
  int count = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index);
  if (error != cudaSuccess) throw_cuda_error(fmt::format("{}: cuda:{}", op, device.index), error);
  return count;
}

// SMs of the device that a grid may count on: all, or `most` where that is positive and fewer. The others may be held by
// kernels that end only when a peer has come further.
inline int num_sms_within(const char* op, Device device, int most) {
  const int sms = num_multiprocessors(op, device);
  return most > 0 ? std::min(most, sms) : sms;
}

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

// Enqueues `kernel` on `stream`, a CUDA stream. Throws Failure that names `op` when CUDA refuses.
template <class... Params, class... Args>
void launch_sm90(const char* op, void (*kernel)(Params...), const LaunchShape& shape, Stream& stream, Args&&... args) {
  const CurrentDevice current(stream.device().index);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native());
  config.attrs = shape.programmatic ? attributes : attributes + 1;
  config.numAttrs = (shape.programmatic ? 1 : 0) + (shape.cluster > 1 ? 1 : 0);
  prepare_kernel(op, reinterpret_cast<const void*>(kernel), stream.device());
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
  if (error != cudaSuccess)
    throw_cuda_error(fmt::format("{}: cannot launch on {}", op, name_of(stream.device())), error);
}

}  // namespace heddle
