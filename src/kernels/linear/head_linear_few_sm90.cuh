// head_linear of up to 16 tokens on tensor cores: sixteen rows of W are the rows of mma.sync, eight tokens its columns. A warp
// has its part of W in registers before it waits for x, because no kernel writes weights, so all of W is in flight at once.
//
// A warp has sixteen rows of one head and up to kWarpFeatures features of them. Longer rows are divided among warps of the
// block, whose sums are added in the order of the features. So a token's bits depend on the row's length alone.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/linear/head_linear.h"
#include "kernels/sm90/convert_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {

inline constexpr int kHeadWarps = 4;
inline constexpr int kHeadRows = 16;       // of a warp
inline constexpr int kWarpFeatures = 128;  // of a row, that a warp has
inline constexpr int kFewHeadTokens = 16;
inline constexpr int kHeadChunk = 32;  // features that four lanes load at once, 16 bytes each
inline constexpr int kHeadChunks = kWarpFeatures / kHeadChunk;

// Warps that share rows of this length: 1, 2 or 4.
__host__ __device__ constexpr int warps_of_row(std::int64_t in_features) {
  return in_features <= kWarpFeatures ? 1 : in_features <= 2 * kWarpFeatures ? 2 : kHeadWarps;
}

// A lane's operands: 16 bytes of each chunk, of rows lane / 4 and of those eight further.
template <int kTiles>
struct HeadPieces {
  uint4 words[kHeadChunks][kTiles];

  // row_of(r): null for zeros.
  template <class RowOf>
  __device__ void load(RowOf row_of, int first_feature, int in_features) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const auto* row = row_of(8 * n + lane / 4);
#pragma unroll
      for (int i = 0; i < kHeadChunks; ++i) {
        const int k = first_feature + i * kHeadChunk + lane % 4 * 8;
        words[i][n] = make_uint4(0, 0, 0, 0);
        if (row != nullptr && k < in_features) words[i][n] = *reinterpret_cast<const uint4*>(row + k);
      }
    }
  }
};

template <class T, int kTokenTiles>
__global__ void __launch_bounds__(kHeadWarps * 32) heads_few(const __grid_constant__ HeadLinearParams params) {
  __shared__ float sums[kHeadWarps][8 * kTokenTiles][kHeadRows + 2];
  let_later_kernels_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int in = static_cast<int>(params.weight.in_features), parts = warps_of_row(in);
  const int rows_of_block = kHeadWarps / parts * kHeadRows, num_tokens = static_cast<int>(params.x.rows);
  const int out = static_cast<int>(params.out_features()), rows = static_cast<int>(params.weight.out_features);
  const auto* weight = static_cast<const T*>(params.weight.blocks[0].data);
  const int first_feature = warp % parts * kWarpFeatures;
  for (int first = static_cast<int>(blockIdx.x) * rows_of_block; first < rows;
       first += static_cast<int>(gridDim.x) * rows_of_block) {
    const int first_row = first + warp / parts * kHeadRows, head = first_row / out;
    const bool exists = first_row < rows;
    HeadPieces<2> w;
    w.load([&](int r) { return exists ? weight + std::int64_t{first_row + r} * in : nullptr; }, first_feature, in);
    wait_for_earlier_kernels();
    HeadPieces<kTokenTiles> x;
    x.load(
        [&](int token) -> const T* {
          if (!exists || token >= num_tokens) return nullptr;
          return static_cast<const T*>(params.x.data) + token * params.x.row_stride + head * params.x_stride;
        },
        first_feature, in);
    float c[kTokenTiles][2][4] = {};  // two chains
#pragma unroll
    for (int i = 0; i < kHeadChunks; ++i)
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
        sm90::multiply_add_packs<T>(c[n][i % 2], w.words[i][0], w.words[i][1], x.words[i][n]);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][8 * n + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = c[n][0][i] + c[n][1][i];
    __syncthreads();
    const int pairs = rows_of_block / 2;  // of neighbouring rows, of a token
    for (int i = static_cast<int>(threadIdx.x); i < num_tokens * pairs; i += kHeadWarps * 32) {
      const int token = i / pairs, of_block = i % pairs * 2, of_tile = of_block % kHeadRows;
      const int first_warp = of_block / kHeadRows * parts;
      float2 sum{0, 0};
      for (int part = 0; part < parts; ++part) {
        const float2 its = *reinterpret_cast<const float2*>(&sums[first_warp + part][token][of_tile]);
        sum.x += its.x, sum.y += its.y;
      }
      const int row = first + of_block;
      if (row < rows)
        *reinterpret_cast<std::uint32_t*>(static_cast<T*>(params.y.data) + token * params.y.row_stride +
                                          row / out * params.y_stride + row % out) = sm90::pack<T>(sum.x, sum.y);
    }
    __syncthreads();  // the next rows' sums take the same places
  }
  wait_for_earlier_kernels();  // as every thread does before it ends
}

// Whether heads_few takes operands that load in packs of 16 bytes and store in pairs.
inline bool takes_few_heads(const HeadLinearParams& params) {
  return params.x.rows <= kFewHeadTokens && params.weight.out_features < (1 << 30) &&
         params.weight.in_features <= kHeadWarps * kWarpFeatures && params.out_features() % kHeadRows == 0;
}

template <class T>
void heads_few_sm90(const HeadLinearParams& params, const Lane& lane) {
  const std::int64_t rows_of_block = kHeadWarps / warps_of_row(params.weight.in_features) * kHeadRows;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(params.weight.out_features, rows_of_block))),
                          .block = kHeadWarps * 32,
                          .fit = GridFit::trimmed};
  params.x.rows <= 8 ? launch_sm90("head_linear", heads_few<T, 1>, shape, lane, params)
                     : launch_sm90("head_linear", heads_few<T, 2>, shape, lane, params);
}

}  // namespace heddle
