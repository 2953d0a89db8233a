// How W and x come into the shared memory of linear_sm90_stream.cuh.
#pragma once

#include <cstdint>

#include "kernels/launch_sm90.cuh"
#include "kernels/linear_sm90_stream_shape.cuh"
#include "kernels/mbarrier_sm90.cuh"

namespace heddle {

// 16 bytes from global memory, or zeros and no access. The policy is for what nobody reads again; the hint is the line
// that the warp asks for anyway (twice as much, which other warps then ask for again, costs 7 % of the rate).
__device__ inline void copy_weights_16(std::uint32_t shared, const void* global, bool there, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
               "r"(there ? 16 : 0), "l"(policy)
               : "memory");
}

__device__ inline void copy_tokens_16(std::uint32_t shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(there ? 16 : 0)
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

// A lane's walk over its pieces: tile by tile, along k in each, round from where the block begins.
template <class Config>
struct StreamCursor {
  int steps;         // of a tile
  int position;      // along k, in steps
  int first_k;       // of the lane, at position 0
  std::int64_t row;  // of the lane's first piece
  int tile_outputs;
  int step = 0;  // of the tile
  int tile = 0;

  __device__ int k() const { return first_k + position * Config::kStepFeatures; }
  __device__ void advance() {
    if (++position == steps) position = 0;
    if (++step < steps) return;
    step = 0;
    row += tile_outputs;
    ++tile;
  }
};

// A lane's pieces of x for one step, to where they stand behind those of W: of its token in each eight, 16 bytes and 16
// that lie 64 further on; from feature tokens.k() + k.
template <class Config, class Operands>
__device__ inline void copy_tokens(const Operands& op, const StreamCursor<Config>& tokens, int k, std::uint32_t slot) {
#pragma unroll
  for (int i = 0; i < 2 * Config::kTokenTiles; ++i) {
    const int token = i / 2 * 8 + static_cast<int>(threadIdx.x) % 32 / 4, from = tokens.k() + k + i % 2 * 32;
    copy_tokens_16(slot + (Config::kRowPieces + i) * Config::kPieceBytes, op.x + token * op.x_stride + from,
                   from < static_cast<int>(op.in_features) && token < op.num_tokens);
  }
}

// Named barriers.
inline constexpr int kBarrierOfAll = 1, kBarrierOfMultipliers = 2, kBarrierOfBringers = 3;

// All of x by the copy engine, zeros behind each token's end; makes the barrier `there`, which is told. One warp.
template <class Config, class Operands, class T>
__device__ inline void bring_whole_tokens(const Operands& op, T* tokens, std::uint32_t there) {
  const int lane = static_cast<int>(threadIdx.x) % 32, in_features = static_cast<int>(op.in_features);
  const int stride = whole_tokens_stride<Config>(in_features);
  if (lane == 0) {
    sm90::init_barrier(there, 1);
    sm90::publish_barriers();
  }
  for (int token = 0; token < op.num_tokens; ++token)
    for (int k = in_features + 8 * lane; k < stride; k += 8 * 32)
      *reinterpret_cast<uint4*>(tokens + token * stride + k) = make_uint4(0, 0, 0, 0);
  __syncwarp();
  sm90::arrive_at_threads(kBarrierOfAll, Config::kBlockThreads);  // who may wait at the barrier from here on
  wait_for_earlier_kernels();
  if (lane == 0) sm90::arrive_expecting(there, static_cast<std::uint32_t>(op.num_tokens * in_features) * 2);
  __syncwarp();
  if (lane < op.num_tokens)
    sm90::copy_bytes(sm90::shared_address(tokens + lane * stride), op.x + lane * op.x_stride,
                     static_cast<std::uint32_t>(in_features) * 2, there);
}

// What the multiplying threads read of x in the first steps, where each would have copied it in the ring; makes the
// barrier `there`, which is told. `tokens` and `ring` are those of the lane in the first warp.
template <class Config, class Operands>
__device__ inline void bring_first_pieces(const Operands& op, StreamCursor<Config> tokens, std::uint32_t ring,
                                          int steps, std::uint32_t there) {
  const int bringer = static_cast<int>(threadIdx.x) - Config::kThreads;
  if (bringer == 0) {
    sm90::init_barrier(there, Config::kBringers);
    sm90::publish_barriers();
  }
  sm90::sync_threads(kBarrierOfBringers, Config::kBringers);
  sm90::arrive_at_threads(kBarrierOfAll, Config::kBlockThreads);  // who may wait at the barrier from here on
  wait_for_earlier_kernels();
  for (int step = 0; step < steps; ++step) {
    for (int warp = bringer / 32; warp < Config::kWarps; warp += Config::kBringers / 32)
      copy_tokens<Config>(op, tokens, warp * 64, ring + step * Config::kStepBytes + warp * 512);
    tokens.advance();
  }
  sm90::arrive_behind_copies(there);
  end_copy_group();
  wait_for_copy_groups<0>();  // no thread ends before its copies
}

}  // namespace heddle
