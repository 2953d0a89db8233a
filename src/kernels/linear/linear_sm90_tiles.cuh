// A tile of a GEMM in one 16-bit dtype whose rows of x and of W lie anywhere: what grouped_linear, grouped_swiglu and
// head_linear are made of where there are many rows. cp.async fills a ring of stages, mma.sync multiplies. A sum goes
// through the elements in order, sixteen at a time, whatever the tile.
#pragma once

#include <cstdint>

#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/tile_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kTileRows = 128;     // of x and of W
inline constexpr int kTileElements = 64;  // of a row, per stage
inline constexpr int kTileStages = 3;     // two blocks share an SM
inline constexpr int kTileThreads = 256;  // two warps along x, four along W
inline constexpr int kTileFragments = 4;  // of a warp, of 16 rows of x and of 8 rows of W

struct GemmTileShared {
  using Operand = Tile<kTileRows, kTileElements>;
  struct Stage {
    std::byte x[Operand::kBytes], weight[Operand::kBytes];
  };
  Stage stages[kTileStages];
};

// Sums of a warp: [i][j] has rows 16 * i + lane / 4 + {0, 8} of its 64 of x, and rows 8 * j + lane % 4 * 2 + {0, 1} of its
// 32 of W, in mma.sync's layout.
using GemmTileSums = float[kTileFragments][kTileFragments][4];

// Copies 16 bytes to shared memory, or zeros.
__device__ inline void copy_piece(std::uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// x_of(r) and weight_of(r): the address of row r of the tile, 16-byte aligned; null: zeros. in_features is a multiple of 8.
// All kTileThreads threads; ends when they may begin the next tile.
template <class T, class XOf, class WeightOf>
__device__ void multiply_gemm_tile(XOf x_of, WeightOf weight_of, int in_features, GemmTileShared& shared,
                                   GemmTileSums& sums) {
  using Operand = GemmTileShared::Operand;
  constexpr int kPieces = kTileElements / 8;           // of a row
  constexpr int kRowsAtOnce = kTileThreads / kPieces;  // that the block copies a piece of
  constexpr int kRowsOfThread = kTileRows / kRowsAtOnce;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int copied_row = thread / kPieces, column = thread % kPieces * 8;
  const T *x[kRowsOfThread], *weight[kRowsOfThread];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    x[i] = x_of(copied_row + i * kRowsAtOnce);
    weight[i] = weight_of(copied_row + i * kRowsAtOnce);
  }
  const int steps = (in_features + kTileElements - 1) / kTileElements;
  const auto copy = [&](int step) {
    if (step < steps) {
      GemmTileShared::Stage& stage = shared.stages[step % kTileStages];
      const int from = step * kTileElements + column;
      const bool inside = from < in_features;
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
        const int at = Operand::offset(copied_row + i * kRowsAtOnce, column);
        // Where nothing is read the address must still be one: that of any row.
        copy_piece(shared_address(stage.x + at), x[i] != nullptr && inside ? x[i] + from : x_of(0),
                   x[i] != nullptr && inside);
        copy_piece(shared_address(stage.weight + at), weight[i] != nullptr && inside ? weight[i] + from : weight_of(0),
                   weight[i] != nullptr && inside);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kTileFragments; ++i)
#pragma unroll
    for (int j = 0; j < kTileFragments; ++j) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0;
#pragma unroll
  for (int step = 0; step < kTileStages - 1; ++step) copy(step);
  const int x_row = warp / 4 * 64 + lane % 16, weight_row = warp % 4 * 32 + lane / 16 * 8 + lane % 8;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kTileStages - 2>();
    __syncthreads();  // the stage is there for all, and all have left the one that is filled next
    copy(step + kTileStages - 1);
    const std::uint32_t from_x = shared_address(shared.stages[step % kTileStages].x);
    const std::uint32_t from_weight = shared_address(shared.stages[step % kTileStages].weight);
#pragma unroll
    for (int k = 0; k < kTileElements; k += 16) {
      std::uint32_t a[kTileFragments][4], b[kTileFragments / 2][4];
#pragma unroll
      for (int i = 0; i < kTileFragments; ++i)
        load_matrices(from_x + Operand::offset(x_row + 16 * i, k + lane / 16 * 8), a[i]);
#pragma unroll
      for (int j = 0; j < kTileFragments / 2; ++j)  // W's rows 0-7, elements 0-7 and 8-15, then rows 8-15
        load_matrices(from_weight + Operand::offset(weight_row + 16 * j, k + lane / 8 % 2 * 8), b[j]);
#pragma unroll
      for (int i = 0; i < kTileFragments; ++i)
#pragma unroll
        for (int j = 0; j < kTileFragments; ++j)
          multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
  wait_for_copies<0>();
  __syncthreads();
}

// Calls f(row of x, i, half) for the rows that this lane has: its sums are sums[i][j][2 * half] and the next one.
template <class F>
__device__ void for_each_tile_row(F f) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kTileFragments; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) f(warp / 4 * 64 + 16 * i + half * 8 + lane / 4, i, half);
}

}  // namespace heddle::sm90
