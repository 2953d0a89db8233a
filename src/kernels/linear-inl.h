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
#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;  // 32, not 16

// A register holds all lanes of a sum, so that a tile can finish its sums without going through memory.
constexpr bool kWholeSums = kRegisters == 1;

// A piece works on kRowsAtOnce rows of W, kTokensAtOnce tokens and a depth of k at a time, so that the tokens and their
// sums stay in the second-level cache (320 KiB of 512; with AVX-512 the tokens, 768 KiB of at least 1 MiB); and in there
// on groups of rows that stay in the first. Where tokens are many, a group is packed: rows of W often lie a multiple of
// 4 KiB apart, and the first-level cache holds no more than eight lines at such distances. With AVX-512 the depth is as
// large as the second-level cache allows: what a tile does besides multiplying costs as much as a depth of 2 KiB.
constexpr std::int64_t kRowsAtOnce = kManyRegisters ? 96 : 48;
constexpr std::int64_t kTokensAtOnce = kManyRegisters ? 96 : 64;
constexpr std::int64_t kFewestTokensToPack = 16;
template <class Format>
constexpr std::int64_t kDepth = (kManyRegisters ? 8192 : 2048) / sizeof(typename Format::Packed);
template <class Format>
constexpr std::int64_t kScratch = kDepth<Format>* kTokensAtOnce;

// A single token reads its rows from end to end; a few read long parts of them, longer ones where registers hold so
// many sums that x may come from the second-level cache.
template <class Format>
constexpr std::int64_t greatest_depth(std::int64_t num_tokens) {
  if (num_tokens == 1) return kScratch<Format>;
  if (num_tokens < kFewestTokensToPack) return 2 * kDepth<Format>;
  return kDepth<Format>;
}

// The least equal shares of in_features, in whole chunks: none is so short that its tiles do little but begin and end.
template <class Format>
std::int64_t depth_for(std::int64_t num_tokens, std::int64_t in_features) {
  const std::int64_t greatest = greatest_depth<Format>(num_tokens);
  const std::int64_t rounds = (in_features + greatest - 1) / greatest;
  const std::int64_t depth = (in_features + rounds - 1) / rounds;
  return (depth + Format::kChunk - 1) / Format::kChunk * Format::kChunk;
}

// How the rows of W lie that a tile reads; packed ones are padded with zeros to whole chunks, as x is.
enum class Rows { in_memory, packed };

// As many sums as registers hold beside what is multiplied: at most 12 of 16 registers, or 24 of 32; fewer where W has
// to be widened, which takes registers, too. One token's tile takes all sixteen lanes at once, so that each line of W
// is read once.
constexpr int rows_of_tile(int tokens, Rows rows) {
  if (kManyRegisters) return tokens == 1 ? 4 : tokens == 2 ? 8 : 6;
  if (tokens <= 2) return 4;
  return rows == Rows::packed ? 3 : 2;
}
constexpr int parts_of_tile(int tokens) {
  return tokens == 1 ? kRegisters : 1;
}
// Rows that are done with all tokens before the next: multiples of the rows of every tile that can occur.
constexpr std::int64_t kRowsOfGroup = kManyRegisters ? 24 : 12;
constexpr std::int64_t kRowsOfPackedGroup = (kManyRegisters ? 1 : 2) * rows_of_tile(4, Rows::packed);
static_assert(kRowsAtOnce % kRowsOfGroup == 0 && kRowsAtOnce % kRowsOfPackedGroup == 0);

// A single token's rows are read as fast as memory gives them, which it does to one stream best; where a few tokens
// read them, the next group comes meanwhile.
constexpr Fetch fetch_for(int tokens, Rows rows) {
  if (rows == Rows::packed) return kManyRegisters ? Fetch::two_rows : Fetch::nothing;
  if (tokens == 1) return kManyRegisters ? Fetch::in_order : Fetch::nothing;
  return Fetch::behind_rows;
}

// Elements [k, k + depth) of some tokens and of rows [first_row, end_row) of W.
template <class Format>
struct Block {
  const LinearParams& params;
  std::int64_t first_row, end_row;
  std::int64_t end_of_piece;  // rows beyond it are another thread's
  std::int64_t first_token, num_tokens;
  std::int64_t k, depth;
  const typename Format::Packed* x[kTokensAtOnce];  // of each token, padded with zeros to whole chunks
  float* lanes;                                     // [rows, num_tokens, kLanes], kept from one block of k to the next

  float* lanes_of(std::int64_t row, std::int64_t t) const {
    return lanes + ((row - first_row) * num_tokens + t) * kLanes;
  }
  bool begins_sums() const { return k == 0; }
  bool ends_sums() const { return k + depth == params.weight.in_features; }
};

// What tiles of so many tokens read once it is packed.
constexpr Packing packing_for(std::int64_t num_tokens) {
  return num_tokens == 1 || kRegisters == 1 ? Packing::chunks : Packing::planes;
}

// Elements of a plane of that many elements, padded to whole chunks.
template <class Format>
constexpr std::int64_t plane_of(std::int64_t count) {
  return (count + Format::kChunk - 1) / Format::kChunk * (Format::kChunk / kRegisters);
}

// Chunks [first, first + num_chunks), which lie at `from`, of a row that is packed to `to` in planes.
template <class Format, class T>
HWY_INLINE void pack_planes(const T* from, std::int64_t first, std::int64_t num_chunks, std::int64_t plane,
                            typename Format::Packed* to) {
  constexpr int kPhases = Format::kPhases;
  for (std::int64_t k = 0; k < num_chunks; ++k) {
#pragma GCC unroll 2
    for (int phase = 0; phase < kPhases; ++phase)
#pragma GCC unroll kUnroll
      for (int part = 0; part < kRegisters; ++part)
        hn::StoreU(Format::operand(from + k * Format::kChunk, part, phase), Floats(),
                   to + part * plane + ((first + k) * kPhases + phase) * kWidth);
  }
}

// Whole chunks, and one padded with zeros, of `count` elements.
template <class Format, class T>
HWY_INLINE void pack_padded(const T* from, std::int64_t count, Packing packing, typename Format::Packed* to) {
  const std::int64_t num_chunks = count / Format::kChunk, whole = num_chunks * Format::kChunk;
  const auto pack = [&](const T* chunks, std::int64_t first, std::int64_t n) {
    if constexpr (kRegisters > 1)
      if (packing == Packing::planes) return pack_planes<Format>(chunks, first, n, plane_of<Format>(count), to);
    Format::pack(chunks, n, to + first * Format::kChunk);
  };
  pack(from, 0, num_chunks);
  if (whole == count) return;
  T tail[Format::kChunk] = {};
  std::memcpy(tail, from + whole, static_cast<std::size_t>(count - whole) * sizeof(T));
  pack(tail, num_chunks, 1);
}

#if HWY_TARGET == HWY_AVX3
// y of a tile whose sums are whole, from registers.
template <class Format, int kRows, int kTokens>
HWY_INLINE void store_tile(const Block<Format>& block, const DotSums<Format, kRows, kTokens, 1>& tile, std::int64_t row,
                           std::int64_t t) {
  constexpr int kStride = kRows <= 4 ? 4 : 8;  // of a token's sums; those beyond the tile repeat others
  constexpr int kTogether = kLanes / kStride;
  alignas(64) float sums[(kTokens + kTogether - 1) / kTogether * kTogether][kStride];
#pragma GCC unroll 4
  for (int first = 0; first < kTokens; first += kTogether) {
    Vector lanes[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      lanes[i] = tile.lanes[std::min(i % kStride, kRows - 1)][std::min(first + i / kStride, kTokens - 1)][0];
    hn::Store(sum_each_of_sixteen(lanes), Floats(), sums[first]);
  }
  const Tensor& y = block.params.y;
  float* to = static_cast<float*>(y.data) + (block.first_token + t) * y.row_stride + row;
  const float* bias = block.params.weight.bias;
  const std::int64_t count = std::min<std::int64_t>(kRows, block.end_row - row);
  if (count == kRows && bias == nullptr) {
#pragma GCC unroll 4
    for (int i = 0; i < kTokens; ++i) std::memcpy(to + i * y.row_stride, sums[i], kRows * sizeof(float));
    return;
  }
#pragma GCC unroll 1
  for (int i = 0; i < kTokens; ++i)
#pragma GCC unroll 1
    for (std::int64_t r = 0; r < count; ++r)
      to[i * y.row_stride + r] = bias == nullptr ? sums[i][r] : sums[i][r] + bias[row + r];
}
#endif

// The tile of rows [row, row + kRows) and of tokens [t, t + kTokens) of the block. `w` is element k of each row, in
// memory or packed; `next` what Fetch::two_rows brings.
template <class Format, int kRows, int kTokens, Rows kLayout, class W>
HWY_NOINLINE void multiply_tile(const Block<Format>& block, const W* const (&w)[kRows], std::int64_t row,
                                std::int64_t t, const Ahead& next = {}) {
  constexpr int kParts = parts_of_tile(kTokens);
  constexpr Packing kX = packing_for(kTokens), kW = kLayout == Rows::packed ? kX : Packing::chunks;
  constexpr Fetch kFetch = fetch_for(kTokens, kLayout);
  constexpr std::int64_t kRowsAhead = kFetch == Fetch::in_order ? kRows : kRowsOfGroup;
  const std::int64_t plane = plane_of<Format>(block.depth);
  const std::int64_t num_chunks = (block.depth + (kLayout == Rows::packed ? Format::kChunk - 1 : 0)) / Format::kChunk;
  const std::int64_t whole = num_chunks * Format::kChunk;
  const auto row_bytes = static_cast<std::ptrdiff_t>(block.params.weight.row_bytes());
  for (int part = 0; part < kRegisters; part += kParts) {
    const W* rows[kRows];
    const typename Format::Packed* x[kTokens];
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) rows[r] = w[r] + (kW == Packing::planes ? part * plane : 0);
#pragma GCC unroll 4
    for (int i = 0; i < kTokens; ++i) x[i] = block.x[t + i] + (kX == Packing::planes ? part * plane : 0);
    // Of each row; the tokens' lie one after the other.
    const auto lanes = [&](int r) { return block.lanes_of(row + r, t) + part * kWidth; };
    DotSums<Format, kRows, kTokens, kParts> sums;
    if (block.begins_sums()) {
      sums.clear();
    } else {
#pragma GCC unroll 24
      for (int r = 0; r < kRows; ++r) sums.load_row(r, lanes(r));
    }
    if constexpr (kFetch == Fetch::two_rows) {
      sums.template add<kW, kX, kFetch>(rows, x, num_chunks, part, next);
    } else {
      const bool reads_first = t == 0 && part == 0;
      if (kFetch != Fetch::nothing && reads_first && row + kRowsAhead < block.end_of_piece)
        sums.template add<kW, kX, kFetch>(rows, x, num_chunks, part, Ahead{.bytes = kRowsAhead * row_bytes});
      else
        sums.template add<kW, kX>(rows, x, num_chunks, part);
    }
    if (kLayout == Rows::in_memory && whole < block.depth) {
      W tails[kRows][Format::kChunk] = {};
      const W* w_tail[kRows];
      const typename Format::Packed* x_tail[kTokens];
      for (int r = 0; r < kRows; ++r) {
        std::memcpy(tails[r], w[r] + whole, static_cast<std::size_t>(block.depth - whole) * sizeof(W));
        w_tail[r] = tails[r];
      }
      for (int i = 0; i < kTokens; ++i) x_tail[i] = x[i] + (kX == Packing::planes ? whole / kRegisters : whole);
      sums.template add<Packing::chunks, kX>(w_tail, x_tail, 1, part);
    }
    if constexpr (kWholeSums) {
      if (block.ends_sums()) return store_tile(block, sums, row, t);
    }
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) sums.store_row(r, lanes(r));
  }
}

// y of the block's tokens and of rows [begin, end), once their sums are whole, where lanes of a sum are in several
// registers.
template <class Format>
HWY_NOINLINE void store_sums(const Block<Format>& block, std::int64_t begin, std::int64_t end) {
  const Tensor& y = block.params.y;
  const float* bias = block.params.weight.bias;
  for (std::int64_t t = 0; t < block.num_tokens; ++t) {
    float* y_row = static_cast<float*>(y.data) + (block.first_token + t) * y.row_stride;
    for (std::int64_t row = begin; row < end; row += 4) {
      const float* lanes[4];  // rows beyond the end repeat the last one
      for (int i = 0; i < 4; ++i) lanes[i] = block.lanes_of(std::min(row + i, end - 1), t);
      float sums[4];
      sum_lanes_of_four(lanes, sums);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(4, end - row); ++i)
        y_row[row + i] = bias == nullptr ? sums[i] : sums[i] + bias[row + i];
    }
  }
}

// Element k of a row of W. Rows beyond the block are its last one: tiles at an edge compute it twice instead of having
// a size of their own, and what they compute twice is dropped. A dot product's bits do not depend on its tile.
template <class Format>
HWY_INLINE const typename Format::Weight* weight_row(const Block<Format>& block, std::int64_t row) {
  const void* data = block.params.weight.row(std::min(row, block.end_row - 1));
  return static_cast<const typename Format::Weight*>(data) + block.k;
}

// All tokens of the block, in tiles of at most four and nearly equal sizes: calls tile(number of tokens as a constant,
// first token).
template <class Tile>
HWY_INLINE void for_each_tile(std::int64_t num_tokens, Tile tile) {
  std::int64_t t = 0;
  while (t < num_tokens) {
    const std::int64_t left = num_tokens - t;
    const std::int64_t num_tiles = (left + 3) / 4;
    const std::int64_t size = (left + num_tiles - 1) / num_tiles;
    if (size == 1) tile(std::integral_constant<int, 1>(), t);
    if (size == 2) tile(std::integral_constant<int, 2>(), t);
    if (size == 3) tile(std::integral_constant<int, 3>(), t);
    if (size == 4) tile(std::integral_constant<int, 4>(), t);
    t += size;
  }
}

// Rows [begin, end) of the block as they lie in memory, end - begin <= kRowsOfGroup.
template <class Format>
void multiply_group(const Block<Format>& block, std::int64_t begin, std::int64_t end) {
  for_each_tile(block.num_tokens, [&](auto tile_tokens, std::int64_t t) {
    constexpr int kRows = rows_of_tile(tile_tokens, Rows::in_memory);
    for (std::int64_t row = begin; row < end; row += kRows) {
      const typename Format::Weight* w[kRows];
      for (int r = 0; r < kRows; ++r) w[r] = weight_row(block, row + r);
      multiply_tile<Format, kRows, tile_tokens, Rows::in_memory>(block, w, row, t);
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
void multiply_packed_group(const Block<Format>& block, std::int64_t begin, std::int64_t end) {
  using Packed = typename Format::Packed;
  alignas(64) Packed packed[kRowsOfPackedGroup][kDepth<Format>];
  for (std::int64_t row = begin; row < begin + kRowsOfPackedGroup; ++row)
    pack_padded<Format>(weight_row(block, row), block.depth, packing_for(block.num_tokens), packed[row - begin]);
  for_each_tile(block.num_tokens, [&](auto tile_tokens, std::int64_t t) {
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

template <class Format>
void multiply_block(const Block<Format>& block) {
  const bool packs = block.num_tokens >= kFewestTokensToPack;
  const std::int64_t group = packs ? kRowsOfPackedGroup : kRowsOfGroup;
  for (std::int64_t row = block.first_row; row < block.end_row; row += group) {
    const std::int64_t end = std::min(block.end_row, row + group);
    if (packs)
      multiply_packed_group(block, row, end);
    else
      multiply_group(block, row, end);
    if constexpr (!kWholeSums)
      if (block.ends_sums()) store_sums(block, row, end);
  }
}

// Rows [begin, end) of the weight, all tokens.
template <class Format>
void multiply_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  using X = typename Format::X;
  static_assert(kDepth<Format> % Format::kChunk == 0);
  // Packed as it lies.
  constexpr bool kReadsInPlace = std::is_same_v<X, typename Format::Packed> && kWholeSums;
  alignas(64) typename Format::Packed x[kScratch<Format>];
  alignas(64) float lanes[kRowsAtOnce * kTokensAtOnce * kLanes];
  for (std::int64_t row = begin; row < end; row += kRowsAtOnce) {
    for (std::int64_t token = 0; token < params.x.rows; token += kTokensAtOnce) {
      const std::int64_t num_tokens = std::min(kTokensAtOnce, params.x.rows - token);
      const std::int64_t depth = depth_for<Format>(num_tokens, params.weight.in_features);
      for (std::int64_t k = 0; k < params.weight.in_features; k += depth) {
        Block<Format> block{.params = params,
                            .first_row = row,
                            .end_row = std::min(end, row + kRowsAtOnce),
                            .end_of_piece = end,
                            .first_token = token,
                            .num_tokens = num_tokens,
                            .k = k,
                            .depth = std::min(depth, params.weight.in_features - k),
                            .x = {},
                            .lanes = lanes};
        for (std::int64_t t = 0; t < num_tokens; ++t) {
          const X* from = static_cast<const X*>(params.x.data) + (token + t) * params.x.row_stride + k;
          if constexpr (kReadsInPlace) {
            block.x[t] = from;
            if (block.depth % Format::kChunk == 0) continue;
          }
          pack_padded<Format>(from, block.depth, packing_for(num_tokens), x + t * depth);
          block.x[t] = x + t * depth;
        }
        multiply_block(block);
      }
    }
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
