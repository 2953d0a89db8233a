// A group carries out an operation together: a CPU thread, or a thread, a warp, some warps or a block of a GPU. Code
// over a Group is written once for all of them; what runs on the CPU is the oracle for the GPU.
#pragma once

#include <concepts>

#include "base/host_device.h"

namespace heddle {

template <class G>
concept Group = requires(const G& group) {
  { group.lane() } -> std::same_as<int>;  // of the caller, 0 .. lanes() - 1
  { group.lanes() } -> std::same_as<int>;
  { group.block() } -> std::same_as<int>;  // index of this group among the rank's groups, 0 .. blocks() - 1
  { group.blocks() } -> std::same_as<int>;
  group.sync();  // all lanes; what each wrote before is visible to the others after
};

// A group whose lanes can vote, as waits need it (agree in spin.h).
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

// One thread of a one-dimensional block; the other threads need not take part.
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

// Some neighbouring warps of a one-dimensional block. They meet at named barrier 1 to 15 (0 is __syncthreads), which no
// other warps of the block use. block() counts thread blocks: a group is the same warps of each. `helpers` more warps
// of the block join sync() and all() but are not lanes.
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
