// The loops of `linear` for one multiplication Format (tiles-inl.h) on one SIMD target. Included once per target, after
// hwy/highway.h, and by linear_bf16_dot.cpp; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_LINEAR_INL_H_
#undef HEDDLE_KERNELS_LINEAR_INL_H_
#else
#define HEDDLE_KERNELS_LINEAR_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/checked.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/linear/linear_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// From kFewestTokensToPackRows tokens on (linear_cpu.h), rows of W are packed and the loops are blocked: kRowsAtOnce
// rows, kTokensAtOnce tokens and a depth of k. The block of x and its sums stay in the L2 cache (320 KiB of 512 KiB;
// with AVX-512 768 KiB of at least 1 MiB). Packing avoids conflict misses: rows of W often lie a multiple of 4 KiB
// apart, and the L1 cache holds only eight lines at such distances. With AVX-512 the depth is as large as L2 allows,
// because the overhead of a tile equals the cost of a depth of 2 KiB.
constexpr std::int64_t kRowsAtOnce = kManyRegisters ? 96 : 48;
template <class Format>
constexpr std::int64_t kDepth = (kManyRegisters ? 8192 : 2048) / sizeof(typename Format::Packed);
constexpr std::int64_t kRowsOfPackedGroup = (kManyRegisters ? 1 : 2) * rows_of_tile(4, Rows::packed);
static_assert(kRowsAtOnce % kRowsOfPackedGroup == 0);

// Fewer tokens take kRowsOfFew rows in strips along k. A strip is short enough that x stays in the L1 cache for a tile
// of five to eight tokens, which AVX-512 has: a core that prefetches from memory all the time has no L1 misses to
// spare, and drops prefetches when it has others. Smaller tiles get longer strips, because they finish a strip too
// soon.
template <class Format>
constexpr std::int64_t longest_strip(std::int64_t tokens_of_tile) {
  return tokens_of_tile > 4 ? 2048 / static_cast<std::int64_t>(sizeof(typename Format::Packed)) : 2 * kDepth<Format>;
}

// Elements of x that are packed at once, of a few tokens or of one. W is read more than once unless they hold all
// tokens: there is room for 15 tokens of 43 690 elements packed as bfloat16, or of 21 845 as float32. The limit is the
// stack: a thread may have no more than 2 MiB.
template <class Format>
constexpr std::int64_t kScratchOfFew = (5 << 18) / sizeof(typename Format::Packed);
constexpr std::int64_t kScratchOfOne = 1 << 17;

// Cuts in_features into rounds of whole chunks of at most `most` elements (a multiple of the chunk). The rounds differ
// by at most one chunk: a short last round would be mostly overhead.
template <class Format>
class Rounds {
 public:
  Rounds(std::int64_t in_features, std::int64_t most)
      : in_features_(in_features),
        num_chunks_(ceil_div<std::int64_t>(in_features, Format::kChunk)),
        count_(ceil_div(num_chunks_ * Format::kChunk, most)) {}

  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t round) const {
    return std::min(in_features_, num_chunks_ * round / count_ * Format::kChunk);
  }
  std::int64_t depth(std::int64_t round) const { return begin(round + 1) - begin(round); }

 private:
  std::int64_t in_features_, num_chunks_, count_;
};

// x whose packed layout is its layout in memory is read in place, unless it needs padding.
template <class Format>
constexpr bool kReadsInPlace = std::is_same_v<typename Format::X, typename Format::Packed>&& kWholeSums;

// Token t's x, packed to `to` in chunks or planes where that is needed.
template <class Format>
const typename Format::Packed* packed_row(const Block<Format>& block, std::int64_t t, Packing packing,
                                          typename Format::Packed* to) {
  const auto* from = block.x_in_memory(t);
  if constexpr (kReadsInPlace<Format>)
    if (block.depth % Format::kChunk == 0) return from;
  pack_padded<Format>(from, block.depth, packing, to);
  return to;
}

// The tile of rows from `row` on, as they lie in memory, times kTokens tokens from t on. Prefetches `ahead` bytes
// beyond what it reads; 0: no prefetch.
template <class Format, int kRows, int kTokens>
HWY_INLINE void multiply_unpacked_tile(const Block<Format>& block, std::int64_t row, std::int64_t t,
                                       std::ptrdiff_t ahead) {
  const typename Format::Weight* w[kRows];
  for (int r = 0; r < kRows; ++r) w[r] = weight_row(block, row + r);
  multiply_tile<Format, kRows, kTokens, Rows::in_memory>(block, w, row, t, {.bytes = ahead});
}

// All rows of the block as they lie in memory. The first tile that reads a row prefetches.
template <class Format>
void multiply_in_memory(const Block<Format>& block, std::ptrdiff_t ahead) {
  for_each_tile<most_tokens_of_tile(Rows::in_memory)>(block.num_tokens, [&](auto tile_tokens, std::int64_t t) {
    constexpr int kRows = rows_of_tile(tile_tokens, Rows::in_memory);
    static_assert(kRowsOfFew % kRows == 0);  // a tile keeps the lanes of all its rows
    for (std::int64_t row = block.first_row; row < block.end_row; row += kRows)
      multiply_unpacked_tile<Format, kRows, tile_tokens>(block, row, t, t == 0 ? ahead : 0);
  });
}

// The prefetch of the tile of tokens [t, t + num_tokens), for the group of rows that begins with `next`. Tiles at equal
// distances prefetch two rows each, so that memory is read at an even rate. The other tiles prefetch what they read,
// which is cached already.
template <class Format>
HWY_INLINE Ahead rows_to_fetch(const Block<Format>& block, std::int64_t next, std::int64_t t, std::int64_t num_tokens,
                               const typename Format::Packed* packed) {
  constexpr std::int64_t kPairs = kRowsOfPackedGroup / 2;
  const std::int64_t pair = (t * kPairs + block.num_tokens - 1) / block.num_tokens;  // the first from t on
  if (next >= block.end_row || pair * block.num_tokens >= (t + num_tokens) * kPairs) return {.rows = {packed, packed}};
  return {.rows = {weight_row(block, next + 2 * pair), weight_row(block, next + 2 * pair + 1)}};
}

constexpr bool every_tile_divides_packed_rows() {
  for (std::int64_t num_tokens = kFewestTokensToPackRows; num_tokens <= kTokensAtOnce; ++num_tokens)
    for (std::int64_t left = num_tokens, size = 0; left > 0; left -= size) {
      size = first_tile_of<most_tokens_of_tile(Rows::packed)>(left);
      if (kRowsOfPackedGroup % rows_of_tile(static_cast<int>(size), Rows::packed) != 0) return false;
    }
  return true;
}

// Rows [begin, end) of the block from a packed copy, end - begin <= kRowsOfPackedGroup.
template <class Format>
void multiply_packed(const Block<Format>& block, std::int64_t begin, std::int64_t end) {
  using Packed = typename Format::Packed;
  alignas(64) Packed packed[kRowsOfPackedGroup][kDepth<Format>];
  for (std::int64_t row = begin; row < begin + kRowsOfPackedGroup; ++row)
    pack_padded<Format>(weight_row(block, row), block.depth, packing_for(block.num_tokens, Rows::packed),
                        packed[row - begin]);
  for_each_tile<most_tokens_of_tile(Rows::packed)>(block.num_tokens, [&](auto tile_tokens, std::int64_t t) {
    constexpr int kRows = rows_of_tile(tile_tokens, Rows::packed);
    static_assert(every_tile_divides_packed_rows());
    if constexpr (kRowsOfPackedGroup % kRows == 0) {  // other sizes do not occur
      const Ahead next = rows_to_fetch(block, begin + kRowsOfPackedGroup, t, tile_tokens, packed[0]);
      for (std::int64_t row = begin; row < end; row += kRows) {
        const Packed* w[kRows];
        for (int r = 0; r < kRows; ++r) w[r] = packed[row - begin + r];
        multiply_tile<Format, kRows, tile_tokens, Rows::packed>(block, w, row, t, next);
      }
    }
  });
}

// Rows [begin, end) of the weight, at most kRowsAtOnce, times enough tokens for rows to be packed.
template <class Format>
HWY_NOINLINE void multiply_many(const LinearParams& params, std::int64_t begin, std::int64_t end, std::int64_t token,
                                std::int64_t num_tokens) {
  alignas(64) typename Format::Packed x[kDepth<Format> * kTokensAtOnce];
  alignas(64) float lanes[kRowsAtOnce * kTokensAtOnce * kLanes];
  const Rounds<Format> rounds(params.weight.in_features, kDepth<Format>);
  Block<Format> block{.params = params,
                      .first_row = begin,
                      .end_row = end,
                      .first_token = token,
                      .num_tokens = num_tokens,
                      .lanes = lanes};
  for (std::int64_t round = 0; round < rounds.count(); ++round) {
    block.k = rounds.begin(round);
    block.depth = rounds.depth(round);
    for (std::int64_t t = 0; t < num_tokens; ++t)
      block.x[t] = packed_row(block, t, packing_for(num_tokens, Rows::packed), x + t * kDepth<Format>);
    for (std::int64_t row = begin; row < end; row += kRowsOfPackedGroup) {
      const std::int64_t end_of_group = std::min(end, row + kRowsOfPackedGroup);
      multiply_packed(block, row, end_of_group);
      if constexpr (!kWholeSums)
        if (block.ends_sums()) store_sums(block, row, end_of_group);
    }
  }
}

// Rows [begin, end) of the weight times a few tokens whose packed x fits.
template <class Format>
HWY_NOINLINE void multiply_few(const LinearParams& params, std::int64_t begin, std::int64_t end, std::int64_t token,
                               std::int64_t num_tokens) {
  constexpr int kMost = most_tokens_of_tile(Rows::in_memory);
  constexpr auto kElement = static_cast<std::ptrdiff_t>(sizeof(typename Format::Weight));
  alignas(64) typename Format::Packed x[kScratchOfFew<Format>];
  alignas(64) float lanes[kRowsOfFew * kFewestTokensToPackRows * kLanes];
  const Rounds<Format> strips(params.weight.in_features, longest_strip<Format>(first_tile_of<kMost>(num_tokens)));
  Block<Format> block{.params = params,
                      .first_row = begin,
                      .end_row = begin,
                      .first_token = token,
                      .num_tokens = num_tokens,
                      .lanes = lanes};
  const auto take_strip = [&](std::int64_t strip) {
    block.k = strips.begin(strip);
    block.depth = strips.depth(strip);
  };
  const auto packed = [&](std::int64_t t) { return x + block.k * num_tokens + t * padded<Format>(block.depth); };

  for (std::int64_t strip = 0; strip < strips.count(); ++strip) {
    take_strip(strip);
    for_each_tile<kMost>(
        num_tokens, [&](auto tile_tokens, std::int64_t t) { pack_tokens<Format, tile_tokens>(block, t, packed(t)); });
  }
  const auto next_rows = static_cast<std::ptrdiff_t>(kRowsOfFew * params.weight.row_bytes());
  for (; block.first_row < end; block.first_row += kRowsOfFew) {
    block.end_row = std::min(end, block.first_row + kRowsOfFew);
    for (std::int64_t strip = 0; strip < strips.count(); ++strip) {
      take_strip(strip);
      for (std::int64_t t = 0; t < num_tokens; ++t) block.x[t] = packed(t);
      std::ptrdiff_t ahead = block.depth * kElement;  // the next strip, or the first of the next rows
      if (block.ends_sums()) ahead = block.end_row < end ? next_rows - block.k * kElement : 0;
      multiply_in_memory(block, ahead);
    }
    if constexpr (!kWholeSums) store_sums(block, block.first_row, block.end_row);
  }
}

// Rows [begin, end) of the weight times one token.
template <class Format>
HWY_NOINLINE void multiply_one(const LinearParams& params, std::int64_t begin, std::int64_t end, std::int64_t token) {
  constexpr int kRows = rows_of_tile(1, Rows::in_memory);
  alignas(64) typename Format::Packed x[kScratchOfOne];
  alignas(64) float lanes[kRowsAtOnce * kLanes];
  const Rounds<Format> rounds(params.weight.in_features, kScratchOfOne);
  const auto next_tile = static_cast<std::ptrdiff_t>(kRows * params.weight.row_bytes());
  for (std::int64_t first = begin; first < end; first += kRowsAtOnce) {
    Block<Format> block{.params = params,
                        .first_row = first,
                        .end_row = std::min(end, first + kRowsAtOnce),
                        .first_token = token,
                        .num_tokens = 1,
                        .lanes = lanes};
    for (std::int64_t round = 0; round < rounds.count(); ++round) {
      block.k = rounds.begin(round);
      block.depth = rounds.depth(round);
      block.x[0] = packed_row(block, 0, packing_for(1, Rows::in_memory), x);
      for (std::int64_t row = first; row < block.end_row; row += kRows)
        multiply_unpacked_tile<Format, kRows, 1>(block, row, 0, row + kRows < end ? next_tile : 0);
    }
    if constexpr (!kWholeSums) store_sums(block, first, block.end_row);
  }
}

// How many of `left` tokens are multiplied at once: few tokens whose packed x does not fit are split evenly.
template <class Format>
std::int64_t tokens_at_once(std::int64_t left, std::int64_t in_features) {
  if (left >= kFewestTokensToPackRows) return std::min(left, kTokensAtOnce);
  const std::int64_t room = std::max<std::int64_t>(1, kScratchOfFew<Format> / padded<Format>(in_features));
  const std::int64_t rounds = ceil_div(left, room);
  return ceil_div(left, rounds);
}

// Rows [begin, end) of the weight times all tokens.
template <class Format>
void multiply_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  const std::int64_t all = params.x.rows, in_features = params.weight.in_features;
  // Rows that several groups of tokens read are taken in blocks that stay in the L2 cache.
  const bool is_one_group = all < kFewestTokensToPackRows && tokens_at_once<Format>(all, in_features) == all;
  const std::int64_t rows_at_once = is_one_group ? end - begin : kRowsAtOnce;
  for (std::int64_t row = begin; row < end; row += rows_at_once) {
    const std::int64_t end_row = std::min(end, row + rows_at_once);
    for (std::int64_t token = 0, num_tokens = 0; token < all; token += num_tokens) {
      num_tokens = tokens_at_once<Format>(all - token, in_features);
      if (num_tokens == 1)
        multiply_one<Format>(params, row, end_row, token);
      else if (num_tokens < kFewestTokensToPackRows)
        multiply_few<Format>(params, row, end_row, token, num_tokens);
      else
        multiply_many<Format>(params, row, end_row, token, num_tokens);
    }
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
