// Who carries out an operation together: one thread of the CPU, or a block of a GPU. Code over a Group is written once
// for both; on the CPU it is the oracle of what it is on the GPU.
#pragma once

#include <concepts>

#include "base/host_device.h"

namespace heddle {

template <class G>
concept Group = requires(const G& group) {
  { group.lane() } -> std::same_as<int>;   // of the caller, 0 .. lanes() - 1
  { group.lanes() } -> std::same_as<int>;  // they share a copy's bytes
  { group.block() } -> std::same_as<int>;  // of this group among those of the rank, 0 .. blocks() - 1
  { group.blocks() } -> std::same_as<int>;
  group.sync();  // all lanes; what each wrote before is visible to the others after
};

// One thread on the CPU.
struct HostThread {
  constexpr int lane() const { return 0; }
  constexpr int lanes() const { return 1; }
  constexpr int block() const { return index; }
  constexpr int blocks() const { return count; }
  constexpr void sync() const {}

  int index = 0;
  int count = 1;
};
static_assert(Group<HostThread>);

#ifdef __CUDACC__
// The threads of a CUDA block, one-dimensional.
struct DeviceBlock {
  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ int lanes() const { return static_cast<int>(blockDim.x); }
  __device__ int block() const { return static_cast<int>(blockIdx.x); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ void sync() const { __syncthreads(); }
};
static_assert(Group<DeviceBlock>);
#endif

}  // namespace heddle
