#include "lane_kernels.h"

#include "device/launch_sm90.cuh"

namespace heddle {
namespace {

constexpr int kThreads = 128;

// So much that an SM holds two.
constexpr std::size_t kSharedBytes = std::size_t{100} << 10;

__global__ void __launch_bounds__(kThreads) count(int* counts, int* blocks_seen) {
  if (threadIdx.x != 0) return;
  atomicAdd(counts + blockIdx.x, 1);
  *blocks_seen = static_cast<int>(gridDim.x);
}

__global__ void __launch_bounds__(kThreads) count_in_turns(int* counts, int* blocks_seen) {
  if (threadIdx.x != 0) return;
  for (unsigned x = blockIdx.x; x < kCountedX; x += gridDim.x)
    for (unsigned y = blockIdx.y; y < kCountedY; y += gridDim.y) atomicAdd(counts + x * kCountedY + y, 1);
  *blocks_seen = static_cast<int>(gridDim.x * gridDim.y);
}

}  // namespace

void enqueue_counts(CountingKernel kernel, int blocks, int* counts, int* blocks_seen, const Lane& lane) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .shared_bytes = kSharedBytes};
  if (kernel == CountingKernel::resident) shape.fit = GridFit::resident;
  if (kernel != CountingKernel::looping) return launch_sm90("test", count, shape, lane, counts, blocks_seen);
  shape.grid = dim3(kCountedX, kCountedY);
  shape.fit = GridFit::trimmed;
  launch_sm90("test", count_in_turns, shape, lane, counts, blocks_seen);
}

int counting_blocks_of_sm(const Lane& lane) {
  const Device device = lane.stream.device();
  const CurrentDevice current(device.index);
  const auto* kernel = reinterpret_cast<const void*>(count);
  prepare_kernel("test", kernel, device);
  return blocks_of_sm("test", kernel, {.block = dim3(kThreads), .shared_bytes = kSharedBytes}, device);
}

}  // namespace heddle
