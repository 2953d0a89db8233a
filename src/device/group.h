// Who carries out an operation together: one thread of the CPU; or a thread, a warp, some warps or a block of a GPU.
// Code over a Group is written once for all; on the CPU it is the oracle of what it is on the GPU.
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

// A group whose lanes can decide together, as a wait needs (agree).
template <class G>
concept VotingGroup = Group<G> && requires(const G& group) {
  { group.all(true) } -> std::same_as<bool>;  // whether all lanes say true; orders memory as sync() does
};

// One thread on the CPU.
struct HostThread {
  constexpr int lane() const { return 0; }
  constexpr int lanes() const { return 1; }
  constexpr int block() const { return index; }
  constexpr int blocks() const { return count; }
  constexpr void sync() const {}
  constexpr bool all(bool vote) const { return vote; }

  int index = 0;
  int count = 1;
};
static_assert(VotingGroup<HostThread>);

#ifdef __CUDACC__
// The threads of a CUDA block, one-dimensional.
struct DeviceBlock {
  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ int lanes() const { return static_cast<int>(blockDim.x); }
  __device__ int block() const { return static_cast<int>(blockIdx.x); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool all(bool vote) const { return __syncthreads_and(vote ? 1 : 0) != 0; }
};
static_assert(VotingGroup<DeviceBlock>);

// One thread of a one-dimensional block; the others may be elsewhere.
struct DeviceThread {
  __device__ int lane() const { return 0; }
  __device__ int lanes() const { return 1; }
  __device__ int block() const { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x * blockDim.x); }
  __device__ void sync() const {}
  __device__ bool all(bool vote) const { return vote; }
};
static_assert(VotingGroup<DeviceThread>);

// The 32 threads of a warp of a one-dimensional block, which has whole warps.
struct DeviceWarp {
  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ int lanes() const { return 32; }
  __device__ int block() const { return static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x * (blockDim.x / 32)); }
  __device__ void sync() const { __syncwarp(); }
  __device__ bool all(bool vote) const {
    const bool every = __all_sync(~0u, vote ? 1 : 0) != 0;
    __syncwarp();  // a vote alone orders no memory
    return every;
  }
};
static_assert(VotingGroup<DeviceWarp>);

// Some neighbouring warps of a one-dimensional block, by a named barrier that nobody else of the block uses: 1 to 15,
// for 0 is __syncthreads. block() counts blocks of the grid: the same warps of each. `helpers` more warps of the block
// join sync() and all(), though they are no lanes.
class DeviceWarps {
 public:
  __device__ DeviceWarps(int first_warp, int warps, int barrier, int helpers = 0)
      : first_thread_(32 * first_warp), lanes_(32 * warps), threads_(32 * (warps + helpers)), barrier_(barrier) {}

  __device__ int lane() const { return static_cast<int>(threadIdx.x) - first_thread_; }
  __device__ int lanes() const { return lanes_; }
  __device__ int block() const { return static_cast<int>(blockIdx.x); }
  __device__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ void sync() const { asm volatile("bar.sync %0, %1;" ::"r"(barrier_), "r"(threads_) : "memory"); }
  __device__ bool all(bool vote) const {
    int every;
    asm volatile(
        "{\n\t"
        ".reg .pred mine, all;\n\t"
        "setp.ne.s32 mine, %3, 0;\n\t"
        "bar.red.and.pred all, %1, %2, mine;\n\t"
        "selp.s32 %0, 1, 0, all;\n\t"
        "}"
        : "=r"(every)
        : "r"(barrier_), "r"(threads_), "r"(vote ? 1 : 0)
        : "memory");
    return every != 0;
  }

 private:
  int first_thread_, lanes_, threads_, barrier_;
};
static_assert(VotingGroup<DeviceWarps>);
#endif

}  // namespace heddle
