// GEMM for every dtype, alignment and size: one warp per row of W, element by element.
#pragma once

#include <cstdint>

#include "device/launch_sm90.cuh"
#include "kernels/linear/linear.h"
#include "kernels/sm90/convert_sm90.cuh"

namespace heddle {

// Operands as kernels take them; strides in elements.
template <class XType, class WType, class YType>
struct LinearOperands {
  const XType* x;
  const WType* weight;
  const float* bias;  // or null
  YType* y;
  std::int64_t x_stride, y_stride;
  std::int64_t in_features, out_features;
  int num_tokens;
};

template <class XType, class WType, class YType>
LinearOperands<XType, WType, YType> operands_of(const LinearParams& params) {
  return {.x = static_cast<const XType*>(params.x.data),
          .weight = static_cast<const WType*>(params.weight.row(0)),
          .bias = params.weight.bias,
          .y = static_cast<YType*>(params.y.data),
          .x_stride = params.x.row_stride,
          .y_stride = params.y.row_stride,
          .in_features = params.weight.in_features,
          .out_features = params.weight.out_features,
          .num_tokens = static_cast<int>(params.x.rows)};
}

inline constexpr int kPlainWarps = 8;
inline constexpr int kPlainTokens = 8;  // that share what a warp reads of W

// One warp: one row of W, kPlainTokens tokens.
template <class XType, class WType, class YType>
__device__ void multiply_row(const LinearOperands<XType, WType, YType>& op, std::int64_t row, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tokens = min(kPlainTokens, op.num_tokens - first);
  const WType* w = op.weight + row * op.in_features;
  const XType* x = op.x + first * op.x_stride;
  float sums[kPlainTokens] = {};
  for (std::int64_t k = lane; k < op.in_features; k += 32) {
    const float weight = sm90::widened(w[k]);
#pragma unroll
    for (int t = 0; t < kPlainTokens; ++t)
      if (t < tokens) sums[t] = fmaf(sm90::widened(x[t * op.x_stride + k]), weight, sums[t]);
  }
  const float bias = op.bias == nullptr ? 0 : op.bias[row];
#pragma unroll
  for (int t = 0; t < kPlainTokens; ++t) {
    float sum = sums[t];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (lane == 0 && t < tokens) op.y[(first + t) * op.y_stride + row] = sm90::rounded<YType>(sum + bias);
  }
}

// Grid: (rows of W / kPlainWarps, tokens / kPlainTokens), rounded up, or smaller.
template <class XType, class WType, class YType>
__global__ void __launch_bounds__(kPlainWarps * 32)
    linear_plain(const __grid_constant__ LinearOperands<XType, WType, YType> op) {
  const std::int64_t rows_of_grid = std::int64_t{gridDim.x} * kPlainWarps;
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (int first = static_cast<int>(blockIdx.y) * kPlainTokens; first < op.num_tokens;
       first += static_cast<int>(gridDim.y) * kPlainTokens)
    for (std::int64_t row = std::int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / 32; row < op.out_features;
         row += rows_of_grid)
      multiply_row(op, row, first);
}

}  // namespace heddle
