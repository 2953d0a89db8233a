// The loops of `linear` on a unit that multiplies tiles of bfloat16 (linear_amx.h), for any such unit: the processor's,
// or the tests' unit in plain C++.
//
// `Unit` has eight tiles of up to 16 rows of 64 bytes, and only static functions:
//   configure(TileShapes)     sets their shapes and clears them; release() ends their use
//   zero<T>()                 clears tile T
//   load<T>(from, stride)     loads its rows, `stride` bytes apart
//   store<T>(to, stride)
//   multiply<S, A, B>()       S[m][n] += the sums of README.md over 32 elements: A has a row for each m, B a row for
//                             each pair of elements, with the pairs of all n side by side
//   transpose(rows, to)       16 x 16 words of 32 bits: word i of rows[j] becomes word j of the 16 words at to + 16 i
//   fetch(from)               prefetches a cache line into the L2 cache
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "kernels/linear/linear.h"

namespace heddle {

// As LDTILECFG reads it.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t first_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{};
  std::array<std::uint8_t, 16> rows{};
};

inline constexpr int kTileRows = 16;
inline constexpr int kStepElements = 32;  // elements of in_features per tile multiplication
inline constexpr std::int64_t kStepBytes = 64;
inline constexpr std::int64_t kPackedTile = kTileRows * kStepElements;  // elements
inline constexpr std::int64_t kSumsOfTile = kTileRows * kTileRows;
inline constexpr std::int64_t kRowsOnTiles =
    2 * kTileRows;  // rows of W, or of many tokens, that are multiplied at once

// Two row tiles times two column tiles make four tiles of sums: 0 to 3. Rows are in 4 and 5, columns in 6 and 7.
template <class Unit>
class TiledLinear {
 public:
  // Computes rows [begin, end) of the weight for all tokens; x and weight are bfloat16.
  static void compute(const LinearParams& params, std::int64_t begin, std::int64_t end) {
    if (params.x.rows <= kFewTokens)
      few_tokens(params, begin, end);
    else
      many_tokens(params, begin, end);
    Unit::release();
  }

  // Up to this many tokens, rows of W are read in place, each once; above, W and x are packed.
  static constexpr std::int64_t kFewTokens = 32;

 private:
  static constexpr std::int64_t kRows = kRowsOnTiles;

  // Rows of W per tile with few tokens. Fewer rows side by side read memory more nearly in its order.
  static constexpr std::int64_t few_rows_of_tile(std::int64_t num_tokens) { return num_tokens <= 16 ? 8 : kTileRows; }
  static constexpr std::int64_t kFewestRowsOfTile = few_rows_of_tile(1);
  static constexpr std::int64_t kFewDepth = 8192;   // elements of x that are packed at once, and
  static constexpr std::int64_t kRowsOfSums = 256;  // rows whose sums are kept if depth is cut

  // With many tokens, 512 KiB of x, 64 KiB of W and 320 KiB of sums stay in the L2 cache, of which each of two
  // hyper-threads may have half. All are packed, because rows often lie a multiple of 4 KiB apart, where a cache holds
  // few of them.
  static constexpr std::int64_t kManyDepth = 1024;
  static constexpr std::int64_t kManyTokens = 256;
  static constexpr std::int64_t kManyRows = 256;
  static constexpr std::int64_t kMostPanels =
      kManyRows / kRows + Weight::kMaxBlocks - 1;  // one more for each end of a weight block
  static constexpr std::int64_t kSumsOfPanel = kManyTokens * kRows;

  // Rows and columns of the two tiles of each side; the first has up to `tile` rows.
  struct Extents {
    std::int64_t rows = 0, columns = 0;
    std::int64_t tile = kTileRows;

    bool two_left() const { return rows > tile; }
    bool two_right() const { return columns > kTileRows; }
    bool operator==(const Extents&) const = default;
  };

  static void configure(Extents extents) {
    TileShapes shapes;
    for (int i = 0; i < 2; ++i) {
      const auto rows =
          static_cast<std::uint8_t>(std::clamp<std::int64_t>(extents.rows - i * extents.tile, 1, extents.tile));
      shapes.rows[4 + i] = rows;
      shapes.row_bytes[4 + i] = kStepBytes;
      for (int j = 0; j < 2; ++j) {
        const auto columns = std::clamp<std::int64_t>(extents.columns - j * kTileRows, 1, kTileRows);
        shapes.rows[6 + j] = kTileRows;
        shapes.row_bytes[6 + j] = static_cast<std::uint16_t>(4 * columns);
        shapes.rows[2 * i + j] = rows;
        shapes.row_bytes[2 * i + j] = static_cast<std::uint16_t>(4 * columns);
      }
    }
    Unit::configure(shapes);
  }

  // What is multiplied next, prefetched line by line in the order of memory. The hardware prefetcher does not predict a
  // jump to another row, and reads several rows at once below the bandwidth of one stream.
  class Ahead {
   public:
    Ahead() = default;
    Ahead(const std::byte* rows, std::int64_t num_rows, std::ptrdiff_t stride, std::int64_t bytes)
        : line_(rows), end_(rows + bytes), left_(num_rows), bytes_(bytes), stride_(stride) {
      if (bytes == stride) {  // contiguous
        end_ = rows + num_rows * bytes;
        left_ = 1;
      }
    }

    void fetch(int lines) {
      for (int i = 0; i < lines && left_ > 0; ++i, line_ += kStepBytes) {
        Unit::fetch(line_);
        if (line_ + kStepBytes < end_) continue;
        if (--left_ == 0) return;
        end_ += stride_;
        line_ = end_ - bytes_ - kStepBytes;
      }
    }

   private:
    const std::byte* line_ = nullptr;
    const std::byte* end_ = nullptr;
    std::int64_t left_ = 0;  // rows
    std::int64_t bytes_ = 0;
    std::ptrdiff_t stride_ = 0;
  };

  // One or two tiles of rows or of columns, at their first elements. Rows lie `stride` bytes apart, the next step's
  // elements `step` bytes further on.
  struct Side {
    const std::byte* first;
    const std::byte* second;
    std::ptrdiff_t stride;
    std::ptrdiff_t step;
  };

  // Adds the products of `steps` times 32 elements to tiles 0 to 3.
  template <int kLeft, int kRight>
  static void add_products(const Side& left, const Side& right, std::int64_t steps, Ahead& ahead, int lines) {
    const std::byte *l0 = left.first, *l1 = left.second, *r0 = right.first, *r1 = right.second;
    for (std::int64_t i = 0; i < steps; ++i) {
      ahead.fetch(lines);
      Unit::template load<4>(l0, left.stride);
      Unit::template load<6>(r0, right.stride);
      Unit::template multiply<0, 4, 6>();
      if constexpr (kRight == 2) {
        Unit::template load<7>(r1, right.stride);
        Unit::template multiply<1, 4, 7>();
      }
      if constexpr (kLeft == 2) {
        Unit::template load<5>(l1, left.stride);
        Unit::template multiply<2, 5, 6>();
        if constexpr (kRight == 2) Unit::template multiply<3, 5, 7>();
      }
      l0 += left.step;
      l1 += left.step;
      r0 += right.step;
      r1 += right.step;
    }
  }
  static void add_products(Extents extents, const Side& left, const Side& right, std::int64_t steps, Ahead& ahead,
                           int lines) {
    if (extents.two_left() && extents.two_right()) return add_products<2, 2>(left, right, steps, ahead, lines);
    if (extents.two_left()) return add_products<2, 1>(left, right, steps, ahead, lines);
    if (extents.two_right()) return add_products<1, 2>(left, right, steps, ahead, lines);
    add_products<1, 1>(left, right, steps, ahead, lines);
  }

  static void clear_sums() {
    Unit::template zero<0>();
    Unit::template zero<1>();
    Unit::template zero<2>();
    Unit::template zero<3>();
  }
  // Tiles 0 to 3 from, or to, memory, where they are contiguous, with rows of 16 floats.
  static void load_sums(Extents extents, const float* from) {
    Unit::template load<0>(from, kStepBytes);
    if (extents.two_right()) Unit::template load<1>(from + kSumsOfTile, kStepBytes);
    if (extents.two_left()) Unit::template load<2>(from + 2 * kSumsOfTile, kStepBytes);
    if (extents.two_left() && extents.two_right()) Unit::template load<3>(from + 3 * kSumsOfTile, kStepBytes);
  }
  static void store_sums(Extents extents, float* to) {
    Unit::template store<0>(to, kStepBytes);
    if (extents.two_right()) Unit::template store<1>(to + kSumsOfTile, kStepBytes);
    if (extents.two_left()) Unit::template store<2>(to + 2 * kSumsOfTile, kStepBytes);
    if (extents.two_left() && extents.two_right()) Unit::template store<3>(to + 3 * kSumsOfTile, kStepBytes);
  }
  // Where the sums of a row's first 16 columns begin; those of the other columns lie kSumsOfTile further on.
  static const float* sums_of_row(Extents extents, const float* sums, std::int64_t row) {
    return row < extents.tile ? sums + row * kTileRows : sums + 2 * kSumsOfTile + (row - extents.tile) * kTileRows;
  }

  // The last elements of up to 32 rows that do not fill a step, padded with zeros.
  struct Tail {
    alignas(64) std::byte bytes[2 * kTileRows][kStepBytes];

    Tail(const std::byte* rows, std::ptrdiff_t stride, std::int64_t num_rows, std::int64_t size) {
      for (std::int64_t r = 0; r < num_rows; ++r) {
        std::memset(bytes[r], 0, kStepBytes);
        std::memcpy(bytes[r], rows + r * stride, static_cast<std::size_t>(size));
      }
    }
  };

  // Rows in place, as the left operand.
  static Side in_memory(Extents extents, const std::byte* rows, std::ptrdiff_t stride) {
    return {rows, rows + extents.tile * stride, stride, kStepBytes};
  }
  static void add_rows_in_memory(Extents extents, const std::byte* rows, std::ptrdiff_t stride, Side right,
                                 std::int64_t depth, Ahead& ahead, int lines) {
    const std::int64_t steps = depth / kStepElements, rest = depth % kStepElements;
    add_products(extents, in_memory(extents, rows, stride), right, steps, ahead, lines);
    if (rest == 0) return;
    const Tail tail(rows + steps * kStepBytes, stride, extents.rows, 2 * rest);
    right.first += steps * right.step;
    right.second += steps * right.step;
    add_products(extents, in_memory(extents, tail.bytes[0], kStepBytes), right, 1, ahead, 0);
  }

  // Packs `depth` elements of each of up to 32 rows as the right operand: for each step a tile of the first 16 rows,
  // then, if there are more, one of the others. Pads missing elements with zeros and missing rows with the last row.
  static Side pack(const std::byte* rows, std::ptrdiff_t stride, std::int64_t num_rows, std::int64_t depth,
                   bfloat16* to) {
    const std::int64_t tiles = num_rows > kTileRows ? 2 : 1;
    const std::int64_t steps = depth / kStepElements, rest = depth % kStepElements;
    if (num_rows == 1) {  // is in packed layout already
      auto* bytes = reinterpret_cast<std::byte*>(to);
      std::memcpy(bytes, rows, static_cast<std::size_t>(2 * depth));
      if (rest != 0) std::memset(bytes + 2 * depth, 0, static_cast<std::size_t>(2 * (kStepElements - rest)));
      return {bytes, bytes, 4, kStepBytes};
    }
    // Eight words of a tile's rows where that is enough: x then takes half the space in the cache.
    const std::int64_t columns = num_rows <= kTileRows / 2 ? kTileRows / 2 : kTileRows;
    const auto transpose = [&](const std::byte* const(&from)[kTileRows], std::int64_t tile) {
      if (columns == kTileRows) return Unit::transpose(from, to + tile * kPackedTile);
      alignas(64) bfloat16 whole[kPackedTile];
      Unit::transpose(from, whole);
      for (std::int64_t i = 0; i < kTileRows; ++i)
        std::memcpy(to + tile * kPackedTile / 2 + i * kTileRows, whole + i * kStepElements, kStepBytes / 2);
    };
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::byte* from[kTileRows];
      for (std::int64_t r = 0; r < kTileRows; ++r)
        from[r] = rows + std::min(tile * kTileRows + r, num_rows - 1) * stride;
      for (std::int64_t step = 0; step < steps; ++step) {
        transpose(from, step * tiles + tile);
        for (const std::byte*& row : from) row += kStepBytes;
      }
      if (rest == 0) continue;
      std::byte tail[kTileRows][kStepBytes] = {};
      for (std::int64_t r = 0; r < kTileRows; ++r) {
        std::memcpy(tail[r], from[r], static_cast<std::size_t>(2 * rest));
        from[r] = tail[r];
      }
      transpose(from, steps * tiles + tile);
    }
    const auto* packed = reinterpret_cast<const std::byte*>(to);
    const std::ptrdiff_t tile_bytes = kTileRows * 4 * columns;
    return {packed, packed + tile_bytes, 4 * columns, tiles * tile_bytes};
  }

  static const std::byte* row_of(const Weight& weight, std::int64_t row, std::int64_t k) {
    return static_cast<const std::byte*>(weight.row(row)) + 2 * k;
  }
  // The row after those of [row, end) that lie in the same block of the weight.
  static std::int64_t end_of_run(const Weight& weight, std::int64_t row, std::int64_t end) {
    std::int64_t last = 0;
    for (const WeightBlock& block : weight.blocks) {
      last += block.num_rows;
      if (row < last) return std::min(end, last);
    }
    return end;
  }
  static Ahead rows_ahead(const Weight& weight, std::int64_t row, std::int64_t end, std::int64_t k,
                          std::int64_t depth) {
    if (row >= end || depth == 0) return {};
    const std::int64_t num_rows = end_of_run(weight, row, end) - row;
    return {row_of(weight, row, k), num_rows, static_cast<std::ptrdiff_t>(weight.row_bytes()), 2 * depth};
  }

  // W is the left operand, in place; x is the right one, so the sums have a row for each row of W.
  static void few_tokens(const LinearParams& params, std::int64_t begin, std::int64_t end) {
    const Weight& weight = params.weight;
    const std::int64_t num_tokens = params.x.rows, all = weight.in_features;
    const std::int64_t rows_of_tile = few_rows_of_tile(num_tokens), rows_at_once = 2 * rows_of_tile;
    const auto* x = static_cast<const std::byte*>(params.x.data);
    alignas(64) bfloat16 packed[kFewDepth * kFewTokens];
    alignas(64) float sums[kRowsOfSums / (2 * kFewestRowsOfTile) + Weight::kMaxBlocks][4 * kSumsOfTile];
    const bool at_once = all <= kFewDepth;
    const std::int64_t rows_of_sums = at_once ? end - begin : kRowsOfSums;
    for (std::int64_t first = begin; first < end; first += rows_of_sums) {
      const std::int64_t last = std::min(end, first + rows_of_sums);
      for (std::int64_t k = 0; k < all; k += kFewDepth) {
        const std::int64_t depth = std::min(kFewDepth, all - k);
        rows_ahead(weight, first, std::min(last, first + rows_at_once), k, depth).fetch(64);  // while x is packed
        const Side right =
            pack(x + 2 * k, static_cast<std::ptrdiff_t>(2 * params.x.row_stride), num_tokens, depth, packed);
        Extents configured;
        std::int64_t group = 0;
        for (std::int64_t row = first, next = 0; row < last; row = next) {
          next = end_of_run(weight, row, std::min(last, row + rows_at_once));
          const Extents extents{next - row, num_tokens, rows_of_tile};
          if (configured != extents) configure(configured = extents);
          float* sums_of_group = sums[at_once ? 0 : group++];
          Ahead ahead = rows_ahead(weight, next, std::min(last, next + rows_at_once), k, depth);
          if (k == 0)
            clear_sums();
          else
            load_sums(extents, sums_of_group);
          add_rows_in_memory(extents, row_of(weight, row, k), static_cast<std::ptrdiff_t>(weight.row_bytes()), right,
                             depth, ahead, static_cast<int>(rows_at_once));
          store_sums(extents, sums_of_group);
          if (k + depth < all) continue;
          for (std::int64_t r = 0; r < extents.rows; ++r) {
            const float* of_row = sums_of_row(extents, sums_of_group, r);
            const float* bias = weight.bias == nullptr ? nullptr : weight.bias + row + r;
            float* y = static_cast<float*>(params.y.data) + row + r;
            for (std::int64_t t = 0; t < num_tokens; ++t) {
              const float sum = of_row[t < kTileRows ? t : kSumsOfTile + t - kTileRows];
              y[t * params.y.row_stride] = bias == nullptr ? sum : sum + *bias;
            }
          }
        }
      }
    }
  }

  // Packs `depth` elements of each row as the left operand: of every 32 rows, step after step, two tiles.
  static void pack_left(const std::byte* rows, std::ptrdiff_t stride, std::int64_t num_rows, std::int64_t depth,
                        bfloat16* to) {
    constexpr std::int64_t kRowsAhead = 3;
    const std::int64_t steps = ceil_div<std::int64_t>(depth, kStepElements), bytes = 2 * depth;
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const std::byte* from = rows + row * stride;
      auto* step_to =
          reinterpret_cast<std::byte*>(to + row / kRows * steps * 2 * kPackedTile) + row % kRows * kStepBytes;
      std::int64_t at = 0;
      const std::ptrdiff_t ahead = row + kRowsAhead < num_rows ? kRowsAhead * stride : 0;
      for (; at + kStepBytes <= bytes; at += kStepBytes, step_to += 4 * kPackedTile) {
        Unit::fetch(from + at + ahead);
        std::memcpy(step_to, from + at, kStepBytes);
      }
      if (at == bytes) continue;
      std::memset(step_to, 0, kStepBytes);
      std::memcpy(step_to, from + at, static_cast<std::size_t>(bytes - at));
    }
  }

  // x is the left operand, W the right one, both packed, so that sums have the layout of y.
  static void many_tokens(const LinearParams& params, std::int64_t begin, std::int64_t end) {
    const Weight& weight = params.weight;
    const auto stride = static_cast<std::ptrdiff_t>(weight.row_bytes());
    const auto x_stride = static_cast<std::ptrdiff_t>(2 * params.x.row_stride);
    alignas(64) bfloat16 x[kManyDepth * kManyTokens];
    alignas(64) bfloat16 w[kManyDepth * kRows];
    alignas(64) float sums[kMostPanels * kSumsOfPanel];
    Extents configured;
    for (std::int64_t first_row = begin; first_row < end; first_row += kManyRows) {
      const std::int64_t end_row = std::min(end, first_row + kManyRows);
      for (std::int64_t first = 0; first < params.x.rows; first += kManyTokens) {
        const std::int64_t num_tokens = std::min(kManyTokens, params.x.rows - first);
        const auto lines = static_cast<int>(kRows / ceil_div(num_tokens, kRows));  // of the next panel, per step
        for (std::int64_t k = 0, next_k = 0; k < weight.in_features; k = next_k) {
          next_k = std::min(weight.in_features, k + kManyDepth);
          const std::int64_t depth = next_k - k, steps = ceil_div<std::int64_t>(depth, kStepElements);
          pack_left(static_cast<const std::byte*>(params.x.data) + first * x_stride + 2 * k, x_stride, num_tokens,
                    depth, x);
          float* panel = sums;
          for (std::int64_t row = first_row, next = 0; row < end_row; row = next, panel += kSumsOfPanel) {
            next = end_of_run(weight, row, std::min(end_row, row + kRows));
            const Side right = pack(row_of(weight, row, k), stride, next - row, depth, w);
            Ahead ahead = next < end_row ? rows_ahead(weight, next, std::min(end_row, next + kRows), k, depth)
                                         : rows_ahead(weight, first_row, std::min(end_row, first_row + kRows), next_k,
                                                      std::min(kManyDepth, weight.in_features - next_k));
            for (std::int64_t t = 0; t < num_tokens; t += kRows) {
              const Extents extents{std::min(kRows, num_tokens - t), next - row};
              if (configured != extents) configure(configured = extents);
              const auto* left = reinterpret_cast<const std::byte*>(x + t * steps * kStepElements);
              float* sums_of_tokens = panel + t * kRows;
              if (k == 0)
                clear_sums();
              else
                load_sums(extents, sums_of_tokens);
              add_products(extents, {left, left + 2 * kPackedTile, kStepBytes, 4 * kPackedTile}, right, steps, ahead,
                           lines);
              store_sums(extents, sums_of_tokens);
              if (next_k == weight.in_features) store(params, row, first + t, extents, sums_of_tokens);
            }
          }
        }
      }
    }
  }

  // Writes y of some tokens, the rows of the sums, and of some rows of W, their columns.
  static void store(const LinearParams& params, std::int64_t row, std::int64_t token, Extents extents,
                    const float* sums) {
    for (std::int64_t t = 0; t < extents.rows; ++t) {
      const float* of_token = sums_of_row(extents, sums, t);
      float* y = static_cast<float*>(params.y.data) + (token + t) * params.y.row_stride + row;
      for (std::int64_t r = 0; r < extents.columns; r += kTileRows, of_token += kSumsOfTile) {
        const std::int64_t count = std::min<std::int64_t>(kTileRows, extents.columns - r);
        std::memcpy(y + r, of_token, static_cast<std::size_t>(count) * sizeof(float));
      }
      if (params.weight.bias == nullptr) continue;
      for (std::int64_t r = 0; r < extents.columns; ++r) y[r] += params.weight.bias[row + r];
    }
  }
};

}  // namespace heddle
