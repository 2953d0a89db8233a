#include "kernels/linear.h"

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear.cpp"  // Highway includes this file again for each instruction set
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
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
      if (row + r < end_row && token + t < end_token) y[(token + t) * params.y.row_stride + row + r] = sum;
    }
  }
}

// Few tokens: each group of weight rows is widened as it is read and serves all tokens while it is in the cache.
template <int kRows, int kTokens, class W>
void multiply_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; row += kRows) {
    const W* w[kRows];
    for (int r = 0; r < kRows; ++r) w[r] = static_cast<const W*>(params.weight.row(std::min(row + r, end - 1)));
    for (std::int64_t token = 0; token < params.x.rows; token += kTokens) {
      const float* x[kTokens];
      for (int t = 0; t < kTokens; ++t) x[t] = x_row(params, token + t);
      Tile<kRows, kTokens> tile = dot_tile<kRows, kTokens>(w, x, params.weight.in_features);
      store(tile, params, row, end, token, params.x.rows);
    }
  }
}

// Many tokens: blocks of weights are widened once into the second-level cache, blocks of tokens packed beside them
// (rows that lie a power of two apart would evict each other), and the lanes of a sum are put aside between blocks.
constexpr int kBlockRows = 32;
constexpr int kBlockTokens = 48;
constexpr int kBlockDepth = 512;  // of in_features
constexpr int kInnerTokens = 12;  // these, kBlockDepth deep, stay in the first-level cache (24 KiB)
static_assert(kBlockRows % kTileRows == 0 && kBlockTokens % kInnerTokens == 0 && kInnerTokens % kTileTokens == 0);

struct Blocks {
  alignas(64) float w[kBlockRows][kBlockDepth];
  alignas(64) float x[kBlockTokens][kBlockDepth];
  alignas(64) float lanes[kBlockRows][kBlockTokens][kLanes];
};

// Widens elements [0, count) and pads with zeros to a multiple of 16.
template <class W>
HWY_INLINE void pack(const W* source, std::int64_t count, float* destination) {
  std::int64_t k = 0;
  for (; k + kWidth <= count; k += kWidth) hn::StoreU(load(source + k), Floats(), destination + k);
  for (; k < count; ++k) destination[k] = to_float(source[k]);
  for (; k % kLanes != 0; ++k) destination[k] = 0;
}

HWY_INLINE void add_tile(Blocks& blocks, int row, int token, std::int64_t depth) {
  Tile<kTileRows, kTileTokens> tile;
  const float* w[kTileRows];
  const float* x[kTileTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) w[r] = blocks.w[row + r];
#pragma GCC unroll 8
  for (int t = 0; t < kTileTokens; ++t) x[t] = blocks.x[token + t];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < kTileTokens; ++t)
#pragma GCC unroll 16
      for (int i = 0; i < kRegisters; ++i) tile.lanes[r][t][i] = load(blocks.lanes[row + r][token + t] + i * kWidth);
  tile.add(w, x, depth);
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < kTileTokens; ++t)
#pragma GCC unroll 16
      for (int i = 0; i < kRegisters; ++i)
        hn::StoreU(tile.lanes[r][t][i], Floats(), blocks.lanes[row + r][token + t] + i * kWidth);
}

template <class W>
void multiply_block(const LinearParams& params, std::int64_t row, std::int64_t end_row, std::int64_t token,
                    Blocks& blocks) {
  const std::int64_t n = params.weight.in_features;
  const auto num_rows = static_cast<int>(end_row - row);
  const auto num_tokens = static_cast<int>(std::min<std::int64_t>(kBlockTokens, params.x.rows - token));
  const int rows = (num_rows + kTileRows - 1) / kTileRows * kTileRows;
  const int tokens = (num_tokens + kTileTokens - 1) / kTileTokens * kTileTokens;

  for (int r = 0; r < rows; ++r) std::fill_n(blocks.lanes[r][0], tokens * kLanes, 0.0f);
  for (std::int64_t k = 0; k < n; k += kBlockDepth) {
    const std::int64_t count = std::min<std::int64_t>(kBlockDepth, n - k);
    for (int r = 0; r < rows; ++r)
      pack(static_cast<const W*>(params.weight.row(std::min(row + r, end_row - 1))) + k, count, blocks.w[r]);
    for (int t = 0; t < tokens; ++t) pack(x_row(params, token + t) + k, count, blocks.x[t]);

    const std::int64_t depth = (count + kLanes - 1) / kLanes * kLanes;
    for (int inner = 0; inner < tokens; inner += kInnerTokens)
      for (int r = 0; r < rows; r += kTileRows)
        for (int t = inner; t < std::min(inner + kInnerTokens, tokens); t += kTileTokens) add_tile(blocks, r, t, depth);
  }

  float* y = static_cast<float*>(params.y.data) + token * params.y.row_stride + row;
  for (int t = 0; t < num_tokens; ++t) {
    for (int r = 0; r < num_rows; ++r) {
      Vector lanes[kRegisters];
#pragma GCC unroll 16
      for (int i = 0; i < kRegisters; ++i) lanes[i] = load(blocks.lanes[r][t] + i * kWidth);
      y[t * params.y.row_stride + r] = sum_lanes(lanes);
    }
  }
}

template <class W>
void multiply_blocks(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  Blocks blocks;
  for (std::int64_t row = begin; row < end; row += kBlockRows)
    for (std::int64_t token = 0; token < params.x.rows; token += kBlockTokens)
      multiply_block<W>(params, row, std::min(row + kBlockRows, end), token, blocks);
}

template <class W>
void multiply(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kMostForRows = 8;  // tokens from which packing pays, as measured
  if (params.x.rows == 1)
    multiply_rows<4, 1, W>(params, begin, end);
  else if (params.x.rows == 2)
    multiply_rows<2, 2, W>(params, begin, end);
  else if (params.x.rows <= kMostForRows)
    multiply_rows<kTileRows, kTileTokens, W>(params, begin, end);
  else
    multiply_blocks<W>(params, begin, end);
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
  constexpr std::int64_t kRowMultiple = 4;  // no tile is cut by the end of a piece
  constexpr std::int64_t kMostRows = 32;    // more would leave threads idle at the end of a small matrix
  const std::int64_t tokens_per_pass = (params.x.rows + 3) / 4;  // a row's work grows with the tokens, more slowly
  const std::int64_t rows = rows_per_piece(params.weight.in_features * tokens_per_pass);
  const std::int64_t grain = params.x.rows > 8 ? kMostRows : (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
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
