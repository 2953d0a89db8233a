// The tile of `linear`: some rows of W times some tokens, for one multiplication Format (tiles-inl.h) on one SIMD
// target. Included once per target, after hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_LINEAR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_LINEAR_TILE_INL_H_
#undef HEDDLE_KERNELS_LINEAR_TILE_INL_H_
#else
#define HEDDLE_KERNELS_LINEAR_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/checked.h"
#include "kernels/cpu/tiles-inl.h"
#include "kernels/linear/linear.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;  // 32 registers of sixteen lanes each

// One register holds all lanes of a sum, so a tile finishes its sums without going through memory.
constexpr bool kWholeSums = kRegisters == 1;

// The layout of the rows of W that a tile reads. Packed rows are padded with zeros to whole chunks, as x is.
enum class Rows { in_memory, packed };

// As many sums as registers allow beside the operands: at most 12 of 16 registers, or 24 of 32; fewer where W must be
// widened, which takes registers too. One token's tile takes all sixteen lanes at once, so that each line of W is read
// once. Tiles of more than four tokens have few rows for the same reason.
constexpr int rows_of_tile(int tokens, Rows rows) {
  if (kManyRegisters && tokens > 4) return 3;
  if (kManyRegisters) return tokens == 1 ? 4 : tokens == 2 ? 8 : 6;
  if (tokens <= 2) return 4;
  return rows == Rows::packed ? 3 : 2;
}
constexpr int parts_of_tile(int tokens) {
  return tokens == 1 ? kRegisters : 1;
}

// Rows in memory are read once for as many tokens as registers allow.
constexpr int most_tokens_of_tile(Rows rows) {
  return kManyRegisters && rows == Rows::in_memory ? 8 : 4;
}

// A Format with kRowByRow reads whole rows one after the other if a row and x stay in the L1 cache.
constexpr std::size_t kMostTokensRowByRow = 2;
constexpr bool goes_row_by_row(std::size_t tokens, std::size_t row_bytes) {
  constexpr std::size_t kMostBytes = 20 << 10;  // of 32 KiB
  return row_bytes <= kMostBytes / (tokens + 1);
}

// The prefetch of a tile that is not read row by row. A single token's rows are read at memory bandwidth, which is
// highest for one stream; where a few tokens read them, the tile prefetches the next part of the same rows.
constexpr Fetch fetch_for(int tokens, Rows rows) {
  if (rows == Rows::packed) return kManyRegisters ? Fetch::two_rows : Fetch::nothing;
  if (tokens == 1) return kManyRegisters ? Fetch::in_order : Fetch::nothing;
  return Fetch::along_rows;
}

constexpr std::int64_t kTokensAtOnce = kManyRegisters ? 96 : 64;

// Elements [k, k + depth) of at most kTokensAtOnce tokens and of rows [first_row, end_row) of W.
template <class Format>
struct Block {
  const LinearParams& params;
  std::int64_t first_row, end_row;
  std::int64_t first_token, num_tokens;
  std::int64_t k = 0, depth = 0;
  const typename Format::Packed* x[kTokensAtOnce] =
      {};        // of each token, or of the first token of each tile; whole chunks
  float* lanes;  // [rows, num_tokens, kLanes], kept from one block of k to the next

  float* lanes_of(std::int64_t row, std::int64_t t) const {
    return lanes + ((row - first_row) * num_tokens + t) * kLanes;
  }
  const typename Format::X* x_in_memory(std::int64_t t) const {
    return static_cast<const typename Format::X*>(params.x.data) + (first_token + t) * params.x.row_stride + k;
  }
  bool begins_sums() const { return k == 0; }
  bool ends_sums() const { return k + depth == params.weight.in_features; }
};

// The layout that tiles of this many tokens read after packing, beside packed or unpacked rows.
constexpr Packing packing_for(std::int64_t num_tokens, Rows rows) {
  if (num_tokens == 1) return Packing::chunks;
  if (kRegisters > 1) return Packing::planes;
  return rows == Rows::packed ? Packing::chunks : Packing::together;
}

constexpr Packing packing_of_rows(std::int64_t num_tokens, Rows rows) {
  return rows == Rows::packed ? packing_for(num_tokens, rows) : Packing::chunks;
}

// That many elements padded to whole chunks, and a plane's part of them.
template <class Format>
constexpr std::int64_t padded(std::int64_t count) {
  return round_up<std::int64_t>(count, Format::kChunk);
}
template <class Format>
constexpr std::int64_t plane_of(std::int64_t count) {
  return padded<Format>(count) / kRegisters;
}

// Packs chunks [first, first + num_chunks) of a row, which lie at `from`, to `to` in planes.
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

// Packs `count` elements as whole chunks and one padded with zeros; chunks lie kEach apart, unless they go to planes.
template <class Format, int kEach = 1, class T>
HWY_INLINE void pack_padded(const T* from, std::int64_t count, Packing packing, typename Format::Packed* to) {
  const std::int64_t num_chunks = count / Format::kChunk, whole = num_chunks * Format::kChunk;
  const auto pack = [&](const T* chunks, std::int64_t first, std::int64_t n) {
    if constexpr (kRegisters > 1)
      if (packing == Packing::planes) return pack_planes<Format>(chunks, first, n, plane_of<Format>(count), to);
    if constexpr (kEach == 1) return Format::pack(chunks, n, to + first * Format::kChunk);
    for (std::int64_t i = 0; i < n; ++i)
      Format::pack(chunks + i * Format::kChunk, 1, to + (first + i) * kEach * Format::kChunk);
  };
  pack(from, 0, num_chunks);
  if (whole == count) return;
  T tail[Format::kChunk] = {};
  std::memcpy(tail, from + whole, static_cast<std::size_t>(count - whole) * sizeof(T));
  pack(tail, num_chunks, 1);
}

// The block's part of tokens [t, t + kTokens), which are one tile's.
template <class Format, int kTokens>
void pack_tokens(const Block<Format>& block, std::int64_t t, typename Format::Packed* to) {
  constexpr Packing kPacking = packing_for(kTokens, Rows::in_memory);
  for (int i = 0; i < kTokens; ++i) {
    if constexpr (kPacking == Packing::together)
      pack_padded<Format, kTokens>(block.x_in_memory(t + i), block.depth, Packing::chunks, to + i * Format::kChunk);
    else
      pack_padded<Format>(block.x_in_memory(t + i), block.depth, kPacking, to + i * padded<Format>(block.depth));
  }
}

#if HWY_TARGET == HWY_AVX3
// Writes y of a tile whose sums are complete, from registers.
template <class Format, int kRows, int kTokens>
HWY_INLINE void store_tile(const Block<Format>& block, const DotSums<Format, kRows, kTokens, 1>& tile, std::int64_t row,
                           std::int64_t t) {
  constexpr int kStride = kRows <= 4 ? 4 : 8;  // of a token's sums; those beyond the tile repeat others
  constexpr int kTogether = kLanes / kStride;
  alignas(64) float sums[round_up(kTokens, kTogether)][kStride];
#pragma GCC unroll 8
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
#pragma GCC unroll 8
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

// Adds the products of a tile's whole chunks. `next` is what it prefetches; a distance of 0: nothing.
template <class Format, int kRows, int kTokens, Rows kLayout, int kParts, class W>
HWY_INLINE void add_chunks(const Block<Format>& block, DotSums<Format, kRows, kTokens, kParts>& sums,
                           const W* const (&rows)[kRows], const typename Format::Packed* const (&x)[kTokens],
                           std::int64_t num_chunks, int part, const Ahead& next) {
  constexpr Packing kX = packing_for(kTokens, kLayout), kW = packing_of_rows(kTokens, kLayout);
  constexpr Fetch kFetch = fetch_for(kTokens, kLayout);
  if constexpr (Format::kRowByRow && kLayout == Rows::in_memory && kTokens <= kMostTokensRowByRow) {
    if (block.begins_sums() && block.ends_sums() && goes_row_by_row(kTokens, block.params.weight.row_bytes()))
      return sums.template add_row_by_row<kX>(rows, x, num_chunks);
  }
  if (kFetch == Fetch::two_rows || (kFetch != Fetch::nothing && part == 0 && next.bytes != 0))
    sums.template add<kW, kX, kFetch>(rows, x, num_chunks, part, next);
  else
    sums.template add<kW, kX>(rows, x, num_chunks, part);
}

// The tile of rows [row, row + kRows) and of tokens [t, t + kTokens) of the block. `w` is element k of each row, in
// memory or packed.
template <class Format, int kRows, int kTokens, Rows kLayout, class W>
HWY_NOINLINE void multiply_tile(const Block<Format>& block, const W* const (&w)[kRows], std::int64_t row,
                                std::int64_t t, const Ahead& next) {
  constexpr int kParts = parts_of_tile(kTokens);
  constexpr Packing kX = packing_for(kTokens, kLayout), kW = packing_of_rows(kTokens, kLayout);
  const std::int64_t plane = plane_of<Format>(block.depth);
  const std::int64_t num_chunks = (block.depth + (kLayout == Rows::packed ? Format::kChunk - 1 : 0)) / Format::kChunk;
  const std::int64_t whole = num_chunks * Format::kChunk;
  for (int part = 0; part < kRegisters; part += kParts) {
    const W* rows[kRows];
    const typename Format::Packed* x[kTokens];
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) rows[r] = w[r] + (kW == Packing::planes ? part * plane : 0);
#pragma GCC unroll 8
    for (int i = 0; i < kTokens; ++i) x[i] = block.x[t + i] + (kX == Packing::planes ? part * plane : 0);
    // Lanes of each row; those of its tokens are contiguous.
    const auto lanes = [&](int r) { return block.lanes_of(row + r, t) + part * kWidth; };
    DotSums<Format, kRows, kTokens, kParts> sums;
    if (block.begins_sums()) {
      sums.clear();
    } else {
#pragma GCC unroll 24
      for (int r = 0; r < kRows; ++r) sums.load_row(r, lanes(r));
    }
    add_chunks<Format, kRows, kTokens, kLayout>(block, sums, rows, x, num_chunks, part, next);
    if (kLayout == Rows::in_memory && whole < block.depth) {
      W tails[kRows][Format::kChunk] = {};
      const W* w_tail[kRows];
      const typename Format::Packed* x_tail[kTokens];
      for (int r = 0; r < kRows; ++r) {
        std::memcpy(tails[r], w[r] + whole, static_cast<std::size_t>(block.depth - whole) * sizeof(W));
        w_tail[r] = tails[r];
      }
      for (int i = 0; i < kTokens; ++i) {
        if constexpr (kX == Packing::together)
          x_tail[i] = x[0] + whole * kTokens;
        else
          x_tail[i] = x[i] + (kX == Packing::planes ? whole / kRegisters : whole);
      }
      sums.template add<Packing::chunks, kX>(w_tail, x_tail, 1, part);
    }
    if constexpr (kWholeSums) {
      if (block.ends_sums()) return store_tile(block, sums, row, t);
    }
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) sums.store_row(r, lanes(r));
  }
}

// Writes y of the block's tokens and of rows [begin, end) once their sums are complete, where the lanes of a sum take
// several registers.
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

// Element k of a row of W. Rows beyond the block repeat its last one: a tile at an edge computes it twice and drops the
// copy, instead of having a size of its own. A dot product's bits do not depend on its tile.
template <class Format>
HWY_INLINE const typename Format::Weight* weight_row(const Block<Format>& block, std::int64_t row) {
  const void* data = block.params.weight.row(std::min(row, block.end_row - 1));
  return static_cast<const typename Format::Weight*>(data) + block.k;
}

// The number of tiles of at most kMost tokens, of nearly equal size.
template <int kMost>
constexpr std::int64_t first_tile_of(std::int64_t num_tokens) {
  const std::int64_t num_tiles = ceil_div<std::int64_t>(num_tokens, kMost);
  return ceil_div(num_tokens, num_tiles);
}

// All tokens of the block: calls tile(number of tokens as a constant, first token).
template <int kMost, class Tile>
HWY_INLINE void for_each_tile(std::int64_t num_tokens, Tile tile) {
  static_assert(kMost == 4 || kMost == 8);
  std::int64_t t = 0;
  while (t < num_tokens) {
    const std::int64_t size = first_tile_of<kMost>(num_tokens - t);
    if (size == 1) tile(std::integral_constant<int, 1>(), t);
    if (size == 2) tile(std::integral_constant<int, 2>(), t);
    if (size == 3) tile(std::integral_constant<int, 3>(), t);
    if (size == 4) tile(std::integral_constant<int, 4>(), t);
    if constexpr (kMost == 8) {
      if (size == 5) tile(std::integral_constant<int, 5>(), t);
      if (size == 6) tile(std::integral_constant<int, 6>(), t);
      if (size == 7) tile(std::integral_constant<int, 7>(), t);
      if (size == 8) tile(std::integral_constant<int, 8>(), t);
    }
    t += size;
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
