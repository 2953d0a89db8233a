// A row of W in one 16-bit dtype times a few tokens of the same, in loads of 16 bytes: what grouped_linear and head_linear
// are made of where rows are aligned. linear_sm90_plain.cuh takes everything else.
#pragma once

#include <cstdint>

#include "kernels/linear/linear_sm90_plain.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {

// One warp: one row of W, kTokens tokens from `first` on, which all exist. in_features is a multiple of kPackElements; W and
// the rows of x are 16-byte aligned. A lane takes every 32nd pack in order; the lanes are added as in multiply_row().
template <int kTokens, class T>
__device__ void multiply_packs_of(const LinearOperands<T, T, T>& op, std::int64_t row, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* w = op.weight + row * op.in_features;
  const T* x = op.x + first * op.x_stride;
  float sums[kTokens] = {};
#pragma unroll 4
  for (std::int64_t k = lane * kPackElements; k < op.in_features; k += 32 * kPackElements) {
    const Pack weights = load_pack(w + k);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const Pack values = load_pack(x + t * op.x_stride + k);
#pragma unroll
      for (int i = 0; i < kPackElements; ++i) sums[t] = fmaf(values.values[i], weights.values[i], sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    float sum = sums[t];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (lane == 0) op.y[(first + t) * op.y_stride + row] = sm90::rounded<T>(sum);
  }
}

// Up to kPlainTokens tokens from `first` on. A token's bits do not depend on how many there are.
template <class T>
__device__ void multiply_row_packs(const LinearOperands<T, T, T>& op, std::int64_t row, int first) {
  static_assert(kPlainTokens == 8);
  int tokens = min(kPlainTokens, op.num_tokens - first);
  if (tokens == 8) return multiply_packs_of<8>(op, row, first);
  if (tokens >= 4) {
    multiply_packs_of<4>(op, row, first);
    first += 4;
    tokens -= 4;
  }
  if (tokens >= 2) {
    multiply_packs_of<2>(op, row, first);
    first += 2;
    tokens -= 2;
  }
  if (tokens == 1) multiply_packs_of<1>(op, row, first);
}

// The version for these operands, chosen by the host.
enum class RowLoads { elements, packs };

template <RowLoads kLoads, class T, class W>
__device__ void multiply_row_with(const LinearOperands<T, W, T>& op, std::int64_t row, int first) {
  if constexpr (kLoads == RowLoads::packs)
    multiply_row_packs(op, row, first);
  else
    multiply_row(op, row, first);
}

}  // namespace heddle
