// How the small-M GEMM (linear_sm90_stream.cuh) assigns rows of W to thread blocks, and where along k a row's sum
// begins. An output is a row of W; for linear_swiglu it is a row of gate and a row of up.
//
// The outputs are cut into kShares even shares, whatever the number of blocks. All rows of a share begin at the same
// step along k and wrap around, so the order of a row's sum depends on its share only, not on the block or the number
// of blocks. A block takes an even part of all outputs and cuts it into tiles at the end of a share and where a tile
// would be too high. With kShares blocks, each has one whole share.
#pragma once

#include <cstdint>

#include "device/even_parts.h"

namespace heddle {

// The SMs of an H100 or H200 (SXM).
inline constexpr int kShares = 132;

// Shares begin at staggered multiples of this many steps, so that blocks do not all load the same part of x at once.
inline constexpr int kStepsApart = 2;

// Outputs times blocks must fit 32 bits.
inline constexpr std::int64_t kMostOutputs = std::int64_t{1} << 22;
inline constexpr int kMostBlocks = 1023;

// A block's part of a share: outputs up to `end`, cut into tiles of one height; the last tile may be lower.
struct StreamShare {
  int end;
  int tiles, tile_outputs;
  int first_step;  // along k, of all its tiles
};

// The share part that begins at output `begin`. steps: per tile.
constexpr StreamShare share_from(int begin, int end_of_block, int outputs, int most_of_tile, int steps) {
  if (begin >= end_of_block) return {.end = begin, .tiles = 0, .tile_outputs = 0, .first_step = 0};
  const auto count = static_cast<std::uint32_t>(outputs);
  const auto share = part_of<std::uint32_t>(count, static_cast<std::uint32_t>(begin), kShares);
  const auto end_of_share = static_cast<int>(begin_of_part<std::uint32_t>(count, share + 1, kShares));
  const int end = end_of_share < end_of_block ? end_of_share : end_of_block;
  const int tiles = (end - begin + most_of_tile - 1) / most_of_tile, starts = (steps + kStepsApart - 1) / kStepsApart;
  return {.end = end,
          .tiles = tiles,
          .tile_outputs = (end - begin + tiles - 1) / tiles,
          .first_step = static_cast<int>(share) % starts * kStepsApart};
}

// Iterates over a block's tiles, share by share.
struct StreamTiles {
  int outputs, most_of_tile, steps;  // of all blocks; per tile
  int end_of_block;
  int begin;  // of the tile
  StreamShare share;

  static constexpr StreamTiles of_block(std::uint32_t block, std::uint32_t blocks, int outputs, int most_of_tile,
                                        int steps) {
    const auto count = static_cast<std::uint32_t>(outputs);
    const auto begin = static_cast<int>(begin_of_part(count, block, blocks));
    const auto end = static_cast<int>(begin_of_part(count, block + 1, blocks));
    return {.outputs = outputs,
            .most_of_tile = most_of_tile,
            .steps = steps,
            .end_of_block = end,
            .begin = begin,
            .share = share_from(begin, end, outputs, most_of_tile, steps)};
  }

  // The tiles left, counted from the first tile of the current share.
  constexpr int count() const {
    int tiles = share.tiles;
    for (int next = share.end; next < end_of_block;) {
      const StreamShare other = share_from(next, end_of_block, outputs, most_of_tile, steps);
      tiles += other.tiles;
      next = other.end;
    }
    return tiles;
  }
  constexpr int tile_outputs() const {
    return share.tile_outputs < share.end - begin ? share.tile_outputs : share.end - begin;
  }
  // Moves on by one tile. True where the next tile is in another share.
  constexpr bool advance() {
    begin += share.tile_outputs;
    if (begin < share.end) return false;
    begin = share.end;
    share = share_from(begin, end_of_block, outputs, most_of_tile, steps);
    return true;
  }
};

}  // namespace heddle
