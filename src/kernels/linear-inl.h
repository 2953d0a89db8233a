// The loops of `linear`, for one way to multiply (a Format of tiles-inl.h) on one instruction set. Included once a
// target, after hwy/highway.h, and by linear_bf16_dot.cpp; the guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_LINEAR_INL_H_
#undef HEDDLE_KERNELS_LINEAR_INL_H_
#else
#define HEDDLE_KERNELS_LINEAR_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/linear.h"
#include "kernels/linear_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Many tokens take kRowsAtOnce rows of W, kTokensAtOnce tokens and a depth of k at a time, so that the tokens and their
// sums stay in the second-level cache (320 KiB of 512; with AVX-512 the tokens, 768 KiB of at least 1 MiB); and in there
// groups of rows, which are packed: rows of W often lie a multiple of 4 KiB apart, and the first-level cache holds no
// more than eight lines at such distances. With AVX-512 the depth is as large as the second-level cache allows: what a
// tile does besides multiplying costs as much as a depth of 2 KiB.
constexpr std::int64_t kRowsAtOnce = kManyRegisters ? 96 : 48;
constexpr std::int64_t kFewestTokensToPack = 16;
template <class Format>
constexpr std::int64_t kDepth = (kManyRegisters ? 8192 : 2048) / sizeof(typename Format::Packed);
constexpr std::int64_t kRowsOfPackedGroup = (kManyRegisters ? 1 : 2) * rows_of_tile(4, Rows::packed);
static_assert(kRowsAtOnce % kRowsOfPackedGroup == 0);

// A few tokens take kRowsOfFew rows strip by strip. Where many share a row, what a tile reads of them stays in the
// first-level cache: for while a core fetches what comes next from memory, which it does all the time, it has no other
// misses of that cache to spare, and drops fetches for them. Fewer are done with a strip too soon for that.
constexpr std::int64_t kRowsOfFew = 24;
template <class Format>
constexpr std::int64_t greatest_strip(std::int64_t tokens_of_tile) {
  return tokens_of_tile > 4 ? 2048 / static_cast<std::int64_t>(sizeof(typename Format::Packed)) : 2 * kDepth<Format>;
}

// Elements of x that are packed at once: of a few tokens all of them, or W would be read more than once.
template <class Format>
constexpr std::int64_t kScratch = (2 << 20) / sizeof(typename Format::Packed);

// The least equal shares of in_features, in whole chunks: none is so short that its tiles do little but begin and end.
template <class Format>
std::int64_t equal_depth(std::int64_t greatest, std::int64_t in_features) {
  const std::int64_t rounds = (in_features + greatest - 1) / greatest;
  const std::int64_t depth = (in_features + rounds - 1) / rounds;
  return (depth + Format::kChunk - 1) / Format::kChunk * Format::kChunk;
}

// Rows [begin, end) of the block as they lie in memory. The first tokens that read a row fetch what lies `ahead` bytes
// behind it; 0: nothing.
template <class Format>
void multiply_in_memory(const Block<Format>& block, std::int64_t begin, std::int64_t end, std::ptrdiff_t ahead) {
  for_each_tile<most_tokens_of_tile(Rows::in_memory)>(block.num_tokens, [&](auto tile_tokens, std::int64_t t) {
    constexpr int kRows = rows_of_tile(tile_tokens, Rows::in_memory);
    for (std::int64_t row = begin; row < end; row += kRows) {
      const typename Format::Weight* w[kRows];
      for (int r = 0; r < kRows; ++r) w[r] = weight_row(block, row + r);
      multiply_tile<Format, kRows, tile_tokens, Rows::in_memory>(block, w, row, t, {.bytes = t == 0 ? ahead : 0});
    }
  });
}

// What the tile of tokens [t, t + num_tokens) fetches for the group of rows that begins with `next`: tiles at equal
// distances take two rows each, so that memory is read at an even pace. Others fetch what they read, which is there.
template <class Format>
HWY_INLINE Ahead rows_to_fetch(const Block<Format>& block, std::int64_t next, std::int64_t t, std::int64_t num_tokens,
                               const typename Format::Packed* packed) {
  constexpr std::int64_t kPairs = kRowsOfPackedGroup / 2;
  const std::int64_t pair = (t * kPairs + block.num_tokens - 1) / block.num_tokens;  // the first from t on
  if (next >= block.end_row || pair * block.num_tokens >= (t + num_tokens) * kPairs) return {.rows = {packed, packed}};
  return {.rows = {weight_row(block, next + 2 * pair), weight_row(block, next + 2 * pair + 1)}};
}

// The same with a packed copy, end - begin <= kRowsOfPackedGroup.
template <class Format>
void multiply_packed(const Block<Format>& block, std::int64_t begin, std::int64_t end) {
  using Packed = typename Format::Packed;
  alignas(64) Packed packed[kRowsOfPackedGroup][kDepth<Format>];
  for (std::int64_t row = begin; row < begin + kRowsOfPackedGroup; ++row)
    pack_padded<Format>(weight_row(block, row), block.depth, packing_for(block.num_tokens, Rows::packed),
                        packed[row - begin]);
  for_each_tile<most_tokens_of_tile(Rows::packed)>(block.num_tokens, [&](auto tile_tokens, std::int64_t t) {
    constexpr int kRows = rows_of_tile(tile_tokens, Rows::packed);
    if constexpr (kRowsOfPackedGroup % kRows == 0) {  // as it is for the tiles of kFewestTokensToPack and more
      const Ahead next = rows_to_fetch(block, begin + kRowsOfPackedGroup, t, tile_tokens, packed[0]);
      for (std::int64_t row = begin; row < end; row += kRows) {
        const Packed* w[kRows];
        for (int r = 0; r < kRows; ++r) w[r] = packed[row - begin + r];
        multiply_tile<Format, kRows, tile_tokens, Rows::packed>(block, w, row, t, next);
      }
    }
  });
}

// Rows [begin, end) of the weight, at most kRowsAtOnce, times one token, or so many that rows are packed.
template <class Format>
void multiply_block(const LinearParams& params, std::int64_t begin, std::int64_t end, std::int64_t token,
                    std::int64_t num_tokens, typename Format::Packed* x, float* lanes) {
  using X = typename Format::X;
  // Packed as it lies.
  constexpr bool kReadsInPlace = std::is_same_v<X, typename Format::Packed> && kWholeSums;
  const bool packs = num_tokens > 1;
  const std::int64_t in_features = params.weight.in_features;
  const std::int64_t depth = equal_depth<Format>(packs ? kDepth<Format> : kScratch<Format>, in_features);
  const std::int64_t rows_of_group = packs ? kRowsOfPackedGroup : end - begin;
  const auto ahead = static_cast<std::ptrdiff_t>(rows_of_tile(1, Rows::in_memory) * params.weight.row_bytes());
  for (std::int64_t k = 0; k < in_features; k += depth) {
    Block<Format> block{.params = params,
                        .first_row = begin,
                        .end_row = end,
                        .first_token = token,
                        .num_tokens = num_tokens,
                        .k = k,
                        .depth = std::min(depth, in_features - k),
                        .x = {},
                        .lanes = lanes};
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      const X* from = static_cast<const X*>(params.x.data) + (token + t) * params.x.row_stride + k;
      if constexpr (kReadsInPlace) {
        block.x[t] = from;
        if (block.depth % Format::kChunk == 0) continue;
      }
      pack_padded<Format>(from, block.depth, packing_for(num_tokens, Rows::packed), x + t * depth);
      block.x[t] = x + t * depth;
    }
    for (std::int64_t row = begin; row < end; row += rows_of_group) {
      const std::int64_t end_of_group = std::min(end, row + rows_of_group);
      if (packs)
        multiply_packed(block, row, end_of_group);
      else
        multiply_in_memory(block, row, end_of_group, ahead);
      if constexpr (!kWholeSums)
        if (block.ends_sums()) store_sums(block, row, end_of_group);
    }
  }
}

// Rows [begin, end) of the weight times a few tokens.
template <class Format>
void multiply_few(const LinearParams& params, std::int64_t begin, std::int64_t end, std::int64_t token,
                  std::int64_t num_tokens, typename Format::Packed* x, float* lanes) {
  constexpr auto kElement = static_cast<std::ptrdiff_t>(sizeof(typename Format::Weight));
  const std::int64_t in_features = params.weight.in_features;
  constexpr int kMost = most_tokens_of_tile(Rows::in_memory);
  const std::int64_t strip = equal_depth<Format>(greatest_strip<Format>(first_tile_of<kMost>(num_tokens)), in_features);
  // From token t on, which begins a tile.
  const auto packed = [&](std::int64_t t, std::int64_t k) { return x + k * num_tokens + t * strip; };
  for_each_tile<kMost>(num_tokens, [&](auto tile_tokens, std::int64_t t) {
    const Tensor& rows = params.x;
    for (std::int64_t k = 0; k < in_features; k += strip)
      pack_tokens<Format, tile_tokens>(
          static_cast<const typename Format::X*>(rows.data) + (token + t) * rows.row_stride + k, rows.row_stride,
          std::min(strip, in_features - k), strip, packed(t, k));
  });
  const auto next_group = static_cast<std::ptrdiff_t>(kRowsOfFew * params.weight.row_bytes());
  for (std::int64_t row = begin; row < end; row += kRowsOfFew) {
    Block<Format> block{.params = params,
                        .first_row = row,
                        .end_row = std::min(end, row + kRowsOfFew),
                        .first_token = token,
                        .num_tokens = num_tokens,
                        .k = 0,
                        .depth = 0,
                        .x = {},
                        .lanes = lanes};
    for (; block.k < in_features; block.k += strip) {
      block.depth = std::min(strip, in_features - block.k);
      for (std::int64_t t = 0; t < num_tokens; ++t) block.x[t] = packed(t, block.k);
      std::ptrdiff_t ahead = strip * kElement;
      if (block.ends_sums()) ahead = block.end_row < end ? next_group - block.k * kElement : 0;
      multiply_in_memory(block, row, block.end_row, ahead);
    }
    if constexpr (!kWholeSums) store_sums(block, row, block.end_row);
  }
}

// Rows [begin, end) of the weight times all tokens.
template <class Format>
void multiply_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  static_assert(kDepth<Format> % Format::kChunk == 0 && kScratch<Format> >= kDepth<Format> * kTokensAtOnce);
  static_assert(kRowsOfFew <= kRowsAtOnce && kFewestTokensToPack <= kTokensAtOnce);
  alignas(64) typename Format::Packed x[kScratch<Format>];
  alignas(64) float lanes[kRowsAtOnce * kTokensAtOnce * kLanes];
  // As many as there is room for; equal strips together are longer than in_features by less than one.
  const std::int64_t few =
      std::min(kFewestTokensToPack - 1, kScratch<Format> / (params.weight.in_features + greatest_strip<Format>(1)));
  const std::int64_t all = params.x.rows;
  const std::int64_t rows_at_once = all > 1 && all <= few ? end - begin : kRowsAtOnce;
  for (std::int64_t row = begin; row < end; row += rows_at_once) {
    const std::int64_t end_row = std::min(end, row + rows_at_once);
    for (std::int64_t token = 0, num_tokens = 0; token < all; token += num_tokens) {
      num_tokens = std::min(kTokensAtOnce, all - token);
      if (num_tokens < kFewestTokensToPack) num_tokens = std::clamp<std::int64_t>(few, 1, num_tokens);
      if (num_tokens == 1 || num_tokens >= kFewestTokensToPack)
        multiply_block<Format>(params, row, end_row, token, num_tokens, x, lanes);
      else
        multiply_few<Format>(params, row, end_row, token, num_tokens, x, lanes);
    }
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
