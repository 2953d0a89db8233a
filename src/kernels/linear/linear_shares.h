// How the rows of W are dealt to the thread blocks of the kernel for few tokens (linear_sm90_stream.cuh), and where along
// k a row's sum begins. An output is a row of W, or, where gates are computed at once, a row of gates and one of ups.
//
// The outputs are cut into kShares even shares, whatever the number of blocks. All rows of a share begin at the same step
// along k and go round from there, so the order of a row's sum follows from its share: it does not depend on the block
// that has the row, nor on how many blocks there are. A block takes an even part of all outputs, to the row, and cuts it
// into tiles where a share ends and where a tile would be too high. With kShares blocks each has one whole share.
#pragma once

#include <cstdint>

#include "device/even_parts.h"

namespace heddle {

// The SMs of an H100 or H200 (SXM).
inline constexpr int kShares = 132;

// Shares begin in turns at multiples of so many steps, so that not all blocks ask for the same part of x at once.
inline constexpr int kStepsApart = 2;

// What 32 bits hold: outputs, times blocks.
inline constexpr std::int64_t kMostOutputs = std::int64_t{1} << 22;
inline constexpr int kMostBlocks = 1023;

// What a block has of a share: outputs up to `end`, cut into tiles of one height, the last one at most as high.
struct StreamShare {
  int end;
  int tiles, tile_outputs;
  int first_step;  // along k, of all its tiles
};

// Of the outputs from `begin` on. steps: of a tile.
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

// A block's tiles in turn, share by share.
struct StreamTiles {
  int outputs, most_of_tile, steps;  // of all blocks; of a tile
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

  // Of all shares from this one on, which is at its first tile.
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
  // True where the next tile is of another share.
  constexpr bool advance() {
    begin += share.tile_outputs;
    if (begin < share.end) return false;
    begin = share.end;
    share = share_from(begin, end_of_block, outputs, most_of_tile, steps);
    return true;
  }
};

}  // namespace heddle
