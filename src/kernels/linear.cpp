#include "kernels/linear.h"

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Tiles at an edge repeat the last row or token instead of having a size of their own, and what they compute twice is
// dropped. A dot product's bits do not depend on its tile, so neither do those of y.

HWY_INLINE const float* x_row(const LinearParams& params, std::int64_t token) {
  return static_cast<const float*>(params.x.data) + std::min(token, params.x.rows - 1) * params.x.row_stride;
}

template <int kRows, int kTokens>
HWY_INLINE void store(Tile<kRows, kTokens>& tile, const LinearParams& params, std::int64_t row, std::int64_t end_row,
                      std::int64_t token, std::int64_t end_token) {
  float* y = static_cast<float*>(params.y.data);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float sum = sum_lanes(tile.lanes[r][t]);
      if (row + r >= end_row || token + t >= end_token) continue;
      const float* bias = params.weight.bias;
      y[(token + t) * params.y.row_stride + row + r] = bias == nullptr ? sum : sum + bias[row + r];
    }
  }
}

template <int kRows, int kTokens, class W>
HWY_NOINLINE void multiply_tile(const LinearParams& params, const W* const (&w)[kRows], std::int64_t row,
                                std::int64_t end_row, std::int64_t token) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = x_row(params, token + t);
  Tile<kRows, kTokens> tile = dot_tile<kRows, kTokens>(w, x, params.weight.in_features);
  store(tile, params, row, end_row, token, params.x.rows);
}

// Weights are widened as they are read, a group of rows at a time; it serves kTokensAtOnce tokens from the first-level
// cache, while those tokens stay in the second-level one for the piece's next rows.
constexpr std::int64_t kTokensAtOnce = 24;

template <int kRows, int kTokens, class W>
void multiply_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  for (std::int64_t first_token = 0; first_token < params.x.rows; first_token += kTokensAtOnce) {
    const std::int64_t end_token = std::min(first_token + kTokensAtOnce, params.x.rows);
    for (std::int64_t row = begin; row < end; row += kRows) {
      const W* w[kRows];
      for (int r = 0; r < kRows; ++r) w[r] = static_cast<const W*>(params.weight.row(std::min(row + r, end - 1)));
      std::int64_t token = first_token;
      for (; token + kTokens <= end_token; token += kTokens) multiply_tile<kRows, kTokens>(params, w, row, end, token);
      if (end_token - token == 1)
        multiply_tile<kRows, 1>(params, w, row, end, token);
      else if (token < end_token)
        multiply_tile<kRows, std::max(1, kTokens - 1)>(params, w, row, end, token);
    }
  }
}

template <class W>
void multiply(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  if (params.x.rows == 1)
    multiply_rows<4, 1, W>(params, begin, end);
  else if (params.x.rows == 2 || params.x.rows == 4)
    multiply_rows<2, 2, W>(params, begin, end);
  else
    multiply_rows<kTileRows, kTileTokens, W>(params, begin, end);
}

// Rows [begin, end) of the weight, all tokens.
void linear_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  switch (params.weight.dtype) {
    case DType::float32:
      return multiply<float>(params, begin, end);
    case DType::bfloat16:
      return multiply<bfloat16>(params, begin, end);
    case DType::float16:
      return multiply<float16>(params, begin, end);
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(linear_rows);

void linear_cpu(const LinearParams& params, ThreadPool& pool) {
  // A row's work grows with the tokens, but pieces of a few rows would read the tokens too often.
  constexpr std::int64_t kFewestRows = 16;
  const std::int64_t rows = rows_per_piece(params.weight.in_features * ((params.x.rows + 3) / 4));
  const std::int64_t grain = (rows + kFewestRows - 1) / kFewestRows * kFewestRows;  // cuts no tile
  const auto multiply_rows = HWY_DYNAMIC_DISPATCH(linear_rows);
  pool.parallel_for(params.weight.out_features, grain,
                    [&](std::int64_t begin, std::int64_t end) { multiply_rows(params, begin, end); });
}

}  // namespace

void linear(const LinearParams& params, Stream& stream) {
  require_cpu(stream, "linear");
  require_weight(params.weight, "linear");
  require_activation(params.x, params.x.rows, params.weight.in_features, "linear", "x");
  require_activation(params.y, params.x.rows, params.weight.out_features, "linear", "y");
  if (params.x.rows == 0) return;
  stream.enqueue([params](ThreadPool& pool) { linear_cpu(params, pool); });
}

}  // namespace heddle
#endif
