// Copies of W and x into the shared memory of linear_sm90_stream.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/linear/linear_sm90_stream_shape.cuh"

namespace heddle {

// Copies 16 bytes from global memory, or writes zeros without an access. The policy evicts first, as nobody reads W
// again. The L2 prefetch is the line that the warp loads anyway: twice as much would be lines that other warps load
// again, which costs 7 % of bandwidth.
__device__ inline void copy_weights_16(std::uint32_t shared, const void* global, bool inside, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
               "r"(inside ? 16 : 0), "l"(policy)
               : "memory");
}

__device__ inline void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ inline void wait_for_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// A cursor along k that wraps around from where the block begins, tile after tile. A lane has one for its pieces of W;
// those that load or read x have one without rows.
template <class Config, class Tiles>
struct StreamCursor {
  Tiles tiles;
  int position;  // along k, in steps
  int first_k;   // of the lane, at position 0
  int step = 0;  // of the tile

  __device__ int k() const { return first_k + position * Config::kStepFeatures; }
  __device__ void advance() {
    if (++position == tiles.steps()) position = 0;
    if (++step < tiles.steps()) return;
    step = 0;
    if (tiles.advance()) position = tiles.first_step();
  }
};

// Named barriers.
inline constexpr int kBarrierOfAll = 1, kBarrierOfMultipliers = 2;

// Full and empty barriers between the warp that loads x and the warps that multiply: a ring where x comes step by step,
// one barrier where x comes whole.
template <class Config>
using StreamBarriers =
    std::conditional_t<Config::kWholeTokens, sm90::Mbarrier, TmaRing<sm90::Mbarrier, Config::kDepth>>;

// Initializes the barrier and loads all of x by TMA, with zeros after each token's end. One warp.
template <class Config, class Operands, class T>
__device__ inline void bring_whole_tokens(const Operands& op, T* tokens, sm90::Mbarrier& there) {
  const int lane = static_cast<int>(threadIdx.x) % 32, in_features = static_cast<int>(op.in_features);
  const int stride = whole_tokens_stride<Config>(in_features);
  if (lane == 0) {
    there.init(1);
    sm90::publish_barriers();
  }
  for (int token = 0; token < op.num_tokens; ++token)
    for (int k = in_features + 8 * lane; k < stride; k += 8 * 32)
      *reinterpret_cast<uint4*>(tokens + token * stride + k) = make_uint4(0, 0, 0, 0);
  __syncwarp();
  sm90::arrive_at_threads(kBarrierOfAll, Config::kBlockThreads);  // the threads that wait on the barrier from here on
  wait_for_earlier_kernels();
  if (lane == 0) there.arrive_expecting(static_cast<std::uint32_t>(op.num_tokens * in_features) * 2);
  __syncwarp();
  if (lane < op.num_tokens)
    sm90::copy_bytes(sm90::shared_address(tokens + lane * stride), op.x + lane * op.x_stride,
                     static_cast<std::uint32_t>(in_features) * 2, there.address());
}

// Stands for the kernel's tensor map where x comes whole. TMA boxes of x are [num_tokens, kBoxFeatures].
struct NoMap {};
template <class Config>
using StreamMap = std::conditional_t<Config::kWholeTokens, NoMap, CUtensorMap>;

// Initializes the barriers and loads x of every step by TMA into the ring's slots as they become empty, with zeros
// after its last feature. `tokens` is at the step's first feature. One warp.
template <class Config, class Tiles>
__device__ inline void bring_tokens_by_steps(const CUtensorMap& map, int num_tokens, StreamCursor<Config, Tiles> tokens,
                                             std::uint32_t slots, int total_steps, StreamBarriers<Config>& ring,
                                             const KernelWaits& waits) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
    sm90::prefetch_map(map);
    ring.init({.producers = 1, .consumers = Config::kWarps});
    sm90::publish_barriers();
  }
  __syncwarp();
  sm90::arrive_at_threads(kBarrierOfAll, Config::kBlockThreads);  // the threads that wait on the barriers from here on
  wait_for_earlier_kernels();
  RingProducer<Config::kDepth> at;
  for (int step = 0; step < total_steps; ++step, at.advance(), tokens.advance()) {
    ring.wait_until_empty(at, waits);
    if (lane == 0) ring.full(at).arrive_expecting(static_cast<std::uint32_t>(num_tokens) * (2 * Config::kStepFeatures));
    __syncwarp();
    if (lane < Config::kStepBoxes)
      sm90::copy_box(slots + at.slot() * Config::kStepBytes + Config::kStepWeightBytes + lane * Config::kBoxBytes, map,
                     tokens.k() + lane * Config::kBoxFeatures, 0, ring.full(at).address());
  }
}

}  // namespace heddle
