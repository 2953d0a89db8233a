// How W and x come into the shared memory of linear_sm90_stream.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/linear/linear_shares.h"
#include "kernels/linear/linear_sm90_stream_shape.cuh"

namespace heddle {

// 16 bytes from global memory, or zeros and no access. The policy is for what nobody reads again; the hint is the line
// that the warp asks for anyway (twice as much, which other warps then ask for again, costs 7 % of the rate).
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

// A walk along k, round from where the block begins, tile by tile: of a lane over its pieces of W, or of those who
// bring or read x, whom rows do not concern.
template <class Config>
struct StreamCursor {
  StreamTiles tiles;
  int position;  // along k, in steps
  int first_k;   // of the lane, at position 0
  int step = 0;  // of the tile

  __device__ int k() const { return first_k + position * Config::kStepFeatures; }
  __device__ void advance() {
    if (++position == tiles.steps) position = 0;
    if (++step < tiles.steps) return;
    step = 0;
    if (tiles.advance()) position = tiles.share.first_step;
  }
};

// Named barriers.
inline constexpr int kBarrierOfAll = 1, kBarrierOfMultipliers = 2;

// Between the warp that brings x and those that multiply: a ring for x by steps; where x comes as a whole, it is there
// once.
template <class Config>
using StreamBarriers =
    std::conditional_t<Config::kWholeTokens, sm90::Mbarrier, TmaRing<sm90::Mbarrier, Config::kDepth>>;

// All of x by the copy engine, zeros behind each token's end; makes the barrier. One warp.
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
  sm90::arrive_at_threads(kBarrierOfAll, Config::kBlockThreads);  // who may wait at the barrier from here on
  wait_for_earlier_kernels();
  if (lane == 0) there.arrive_expecting(static_cast<std::uint32_t>(op.num_tokens * in_features) * 2);
  __syncwarp();
  if (lane < op.num_tokens)
    sm90::copy_bytes(sm90::shared_address(tokens + lane * stride), op.x + lane * op.x_stride,
                     static_cast<std::uint32_t>(in_features) * 2, there.address());
}

// What the kernel takes beside its operands where it brings x by steps: boxes of all tokens and kBoxFeatures.
struct NoMap {};
template <class Config>
using StreamMap = std::conditional_t<Config::kWholeTokens, NoMap, CUtensorMap>;

// x of every step in turn by the copy engine, with zeros behind its last feature, into the ring's slots as they have
// been read; makes the barriers. `tokens` is at the step's first feature. One warp.
template <class Config>
__device__ inline void bring_tokens_by_steps(const CUtensorMap& map, int num_tokens, StreamCursor<Config> tokens,
                                             std::uint32_t slots, int total_steps, StreamBarriers<Config>& ring,
                                             const KernelWaits& waits) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
    sm90::prefetch_map(map);
    ring.init({.producers = 1, .consumers = Config::kWarps});
    sm90::publish_barriers();
  }
  __syncwarp();
  sm90::arrive_at_threads(kBarrierOfAll, Config::kBlockThreads);  // who may wait at the barriers from here on
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
