// The product for few tokens: W streams through shared memory once, at the memory's rate, and meets x in the tensor
// cores (mma.sync, rows of W as its 16 rows, tokens as its 8 columns, so that up to 8 tokens cost what one does).
//
// A team of blocks takes an even share of W's rows, to the row. Its warps split k among them in chunks of 32: a lane's 16
// bytes are 8 neighbours of a row, which is not the order of k that the instruction has in mind, but the sum does not
// care as long as x is dealt out alike. What a lane copies it alone reads, so copies need no barrier, only the lane's own
// cp.async groups: shared memory serves as registers that loads may write late. Behind the last k of a tile the warps'
// sums meet in shared memory, in order of the warps, while the copies of the next tile are on their way.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/launch_sm90.cuh"
#include "kernels/linear_sm90_plain.cuh"

namespace heddle {

template <int kWarps_, int kRowTiles_, int kPieces_, int kDepth_, int kCluster_ = 1, int kTrigger_ = 0,
          int kPrefetch_ = 0>
struct StreamConfig {
  static constexpr int kWarps = kWarps_;
  static constexpr int kRowTiles = kRowTiles_;  // of 16 rows, that share what is read of x
  static constexpr int kPieces = kPieces_;      // chunks of 32 elements of k that a warp takes at once
  static constexpr int kDepth = kDepth_;        // such steps on their way
  static constexpr int kCluster = kCluster_;    // blocks of a team, which split k
  static constexpr int kTrigger = kTrigger_;
  static constexpr int kPrefetch = kPrefetch_;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kTileRows = kRowTiles * 16;
  static constexpr int kRowStride = kTileRows + 4;  // of sums: a warp's stores fall on 32 banks
};

template <class Config>
constexpr std::size_t stream_shared_bytes(int token_tiles) {
  const std::size_t ring =
      std::size_t{16} * Config::kThreads * Config::kDepth * Config::kPieces * (2 * Config::kRowTiles + token_tiles);
  const std::size_t sums = std::size_t{4} * Config::kRowStride * 8 * token_tiles;
  return ring + sums * (Config::kWarps + (Config::kCluster > 1 ? 2 : 0));
}

template <int kPrefetch>
__device__ inline void copy_16(std::uint32_t shared, const void* global, bool there, std::uint64_t policy) {
  const int bytes = there ? 16 : 0;  // the rest is zeros
  if constexpr (kPrefetch == 256)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
                 "r"(bytes), "l"(policy)
                 : "memory");
  else if constexpr (kPrefetch == 128)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
                 "r"(bytes), "l"(policy)
                 : "memory");
  else
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
                 "r"(bytes), "l"(policy)
                 : "memory");
}

__device__ inline void copy_16(std::uint32_t shared, const void* global, bool there) {
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
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

__device__ inline void multiply_add(float (&c)[4], const uint4& low, const uint4& high, const uint4& x, __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(x.x), "r"(x.y));
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(low.z), "r"(high.z), "r"(low.w), "r"(high.w), "r"(x.z), "r"(x.w));
}

__device__ inline void multiply_add(float (&c)[4], const uint4& low, const uint4& high, const uint4& x, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(x.x), "r"(x.y));
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(low.z), "r"(high.z), "r"(low.w), "r"(high.w), "r"(x.z), "r"(x.w));
}

__device__ inline void arrive_and_wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ inline float load_of_block(const float* shared, int rank) {
  float value;
  asm volatile("{.reg .u32 a;\nmapa.shared::cluster.u32 a, %1, %2;\nld.shared::cluster.f32 %0, [a];}"
               : "=f"(value)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank)
               : "memory");
  return value;
}

// A lane's walk over its pieces of W: tile by tile, along k in each.
template <class Config>
struct StreamCursor {
  int step = 0, steps;      // of a tile
  std::int64_t k, first_k;  // of the lane's piece
  std::int64_t rows_left;   // from the lane's first row of the tile to the end
  __device__ void advance() {
    k += Config::kWarps * Config::kCluster * Config::kPieces * 32;
    if (++step == steps) {
      step = 0;
      k = first_k;
      rows_left -= Config::kTileRows;
    }
  }
};

// x, W and y aligned as 16-byte pieces of x and W want it, in_features a multiple of 8, num_tokens <= 8 * kTokenTiles.
template <class Config, int kTokenTiles, class T, class Y>
__global__ void __launch_bounds__(Config::kThreads, 1) __cluster_dims__(Config::kCluster)
    linear_stream(const __grid_constant__ LinearOperands<T, T, Y> op) {
  constexpr int kRowPieces = 2 * Config::kRowTiles;
  constexpr int kStepPieces = Config::kPieces * (kRowPieces + kTokenTiles);
  extern __shared__ uint4 ring[];  // [kDepth][kStepPieces][kThreads]
  auto* sums = reinterpret_cast<float*>(ring + Config::kDepth * kStepPieces * Config::kThreads);
  float* team_sums = sums + Config::kWarps * 8 * kTokenTiles * Config::kRowStride;  // two, taken in turns

  if constexpr (Config::kTrigger == 0) let_later_kernels_start();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int row_of_lane = lane / 4, piece_of_lane = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % Config::kCluster;
  const std::int64_t team = blockIdx.x / Config::kCluster, teams = gridDim.x / Config::kCluster;
  const std::int64_t begin = op.out_features * team / teams, end = op.out_features * (team + 1) / teams;
  const int tiles = static_cast<int>((end - begin + Config::kTileRows - 1) / Config::kTileRows);

  constexpr int kParts = Config::kWarps * Config::kCluster;
  const int chunks = static_cast<int>((op.in_features + 32 * Config::kPieces - 1) / (32 * Config::kPieces));
  const int part = rank * Config::kWarps + warp;
  const int steps = max(0, (chunks - part + kParts - 1) / kParts);
  const int total_steps = steps * tiles;

  const std::uint64_t policy = evict_first_policy();
  const auto my_ring = static_cast<std::uint32_t>(__cvta_generic_to_shared(ring + thread));
  constexpr std::uint32_t kPieceBytes = 16 * Config::kThreads, kStepBytes = kPieceBytes * kStepPieces;

  StreamCursor<Config> weights;
  weights.steps = steps;
  weights.first_k = weights.k = part * 32 * Config::kPieces + piece_of_lane * 8;
  weights.rows_left = end - begin - row_of_lane;
  const auto copy_weights = [&](std::uint32_t slot) {
    const T* from = op.weight + (end - weights.rows_left) * op.in_features + weights.k;
#pragma unroll
    for (int piece = 0; piece < Config::kPieces; ++piece) {
      const bool in_row = weights.k + piece * 32 < op.in_features;
#pragma unroll
      for (int i = 0; i < kRowPieces; ++i)
        copy_16<Config::kPrefetch>(my_ring + slot * kStepBytes + (piece * kRowPieces + i) * kPieceBytes,
                                   from + piece * 32 + i * 8 * op.in_features, in_row && i * 8 < weights.rows_left,
                                   policy);
    }
  };
  StreamCursor<Config> tokens = weights;
  const auto copy_tokens = [&](std::uint32_t slot) {
#pragma unroll
    for (int piece = 0; piece < Config::kPieces; ++piece) {
      const bool in_row = tokens.k + piece * 32 < op.in_features;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const int token = n * 8 + row_of_lane;
        copy_16(my_ring + slot * kStepBytes + (Config::kPieces * kRowPieces + piece * kTokenTiles + n) * kPieceBytes,
                op.x + token * op.x_stride + tokens.k + piece * 32, in_row && token < op.num_tokens);
      }
    }
  };

  int weights_issued = 0;
#pragma unroll 1
  for (; weights_issued < Config::kDepth; ++weights_issued) {
    if (weights_issued < total_steps) copy_weights(weights_issued), weights.advance();
    end_copy_group();
  }
  wait_for_earlier_kernels();
#pragma unroll 1
  for (int slot = 0; slot < Config::kDepth; ++slot) {
    if (slot < total_steps) copy_tokens(slot), tokens.advance();
    end_copy_group();
  }

  std::uint32_t slot = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    float c[Config::kRowTiles][kTokenTiles][4] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for_copy_groups<Config::kDepth - 1>();
      const uint4* pieces = ring + slot * (kStepPieces * Config::kThreads) + thread;
#pragma unroll
      for (int piece = 0; piece < Config::kPieces; ++piece) {
        uint4 x[kTokenTiles];
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n)
          x[n] = pieces[(Config::kPieces * kRowPieces + piece * kTokenTiles + n) * Config::kThreads];
#pragma unroll
        for (int m = 0; m < Config::kRowTiles; ++m) {
          const uint4 low = pieces[(piece * kRowPieces + 2 * m) * Config::kThreads];
          const uint4 high = pieces[(piece * kRowPieces + 2 * m + 1) * Config::kThreads];
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) multiply_add(c[m][n], low, high, x[n], T{});
        }
      }
      if (weights_issued < total_steps) {
        copy_weights(slot), weights.advance();
        copy_tokens(slot), tokens.advance();
        ++weights_issued;
      }
      end_copy_group();
      slot = slot + 1 == Config::kDepth ? 0 : slot + 1;
    }
    if constexpr (Config::kTrigger == 1)
      if (tile + 1 == tiles) let_later_kernels_start();

    if (tile > 0) __syncthreads();  // the last tile's sums have been read
    float* mine = sums + warp * 8 * kTokenTiles * Config::kRowStride;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
      for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mine[(n * 8 + piece_of_lane * 2 + i % 2) * Config::kRowStride + m * 16 + i / 2 * 8 + row_of_lane] =
              c[m][n][i];
    __syncthreads();
    const std::int64_t first_row = begin + std::int64_t{tile} * Config::kTileRows;
    float* team_tile = team_sums + tile % 2 * 8 * kTokenTiles * Config::kRowStride;
    for (int i = thread; i < op.num_tokens * Config::kTileRows; i += Config::kThreads) {
      const int token = i / Config::kTileRows, row = i % Config::kTileRows;
      const int at = token * Config::kRowStride + row;
      float sum = sums[at];
#pragma unroll
      for (int w = 1; w < Config::kWarps; ++w) sum += sums[w * 8 * kTokenTiles * Config::kRowStride + at];
      if constexpr (Config::kCluster > 1) {
        team_tile[at] = sum;
      } else if (first_row + row < end) {
        if (op.bias != nullptr) sum += op.bias[first_row + row];
        store_rounded(op.y + token * op.y_stride + first_row + row, sum);
      }
    }
    if constexpr (Config::kCluster > 1) {
      arrive_and_wait_for_cluster();
      for (int i = thread + rank * Config::kThreads; i < op.num_tokens * Config::kTileRows;
           i += Config::kThreads * Config::kCluster) {
        const int token = i / Config::kTileRows, row = i % Config::kTileRows;
        float sum = 0;
#pragma unroll
        for (int r = 0; r < Config::kCluster; ++r)
          sum += load_of_block(team_tile + token * Config::kRowStride + row, r);
        if (first_row + row >= end) continue;
        if (op.bias != nullptr) sum += op.bias[first_row + row];
        store_rounded(op.y + token * op.y_stride + first_row + row, sum);
      }
    }
  }
  if constexpr (Config::kCluster > 1) arrive_and_wait_for_cluster();  // the others may read this block's sums till then
}

}  // namespace heddle
