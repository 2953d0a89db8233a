// How the small-M GEMM (linear_sm90_stream.cuh) assigns rows of W to thread blocks, and where along k a row's sum
// begins. An output is a row of W; for linear_swiglu it is a row of gate and a row of up.
//
// The outputs are cut into kShares even shares, whatever the number of blocks. All rows of a share begin at the same
// step along k and wrap around, so the order of a row's sum depends on its share only, not on the block or the number
// of blocks. A block takes an even part of all outputs and cuts it into tiles at the end of a share and where a tile
// would be too high. With kShares blocks, each has one whole share, and ShareTiles finds it without a division: nothing
// that a block computes before its first load is hidden by another block.
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

// Iterates over a block's tiles, share by share, in a grid of any number of blocks.
struct StreamTiles {
  struct Sizes {
    int outputs, most_of_tile, steps;  // of all blocks; per tile

    static constexpr Sizes of(int outputs, int most_of_tile, int steps) { return {outputs, most_of_tile, steps}; }
  };

  Sizes sizes;
  int end_of_block;
  int begin;  // of the tile
  StreamShare share;

  static constexpr StreamTiles of_block(const Sizes& sizes, std::uint32_t block, std::uint32_t blocks) {
    const auto count = static_cast<std::uint32_t>(sizes.outputs);
    const auto begin = static_cast<int>(begin_of_part(count, block, blocks));
    const auto end = static_cast<int>(begin_of_part(count, block + 1, blocks));
    return {.sizes = sizes, .end_of_block = end, .begin = begin, .share = share_of(sizes, begin, end)};
  }

  constexpr int steps() const { return sizes.steps; }
  constexpr int first_step() const { return share.first_step; }

  // The tiles left, counted from the first tile of the current share.
  constexpr int count() const {
    int tiles = share.tiles;
    for (int next = share.end; next < end_of_block;) {
      const StreamShare other = share_of(sizes, next, end_of_block);
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
    share = share_of(sizes, begin, end_of_block);
    return true;
  }

 private:
  static constexpr StreamShare share_of(const Sizes& sizes, int begin, int end_of_block) {
    return share_from(begin, end_of_block, sizes.outputs, sizes.most_of_tile, sizes.steps);
  }
};

// The same for a grid of kShares blocks. A share has the least number of outputs or one more, so that the host can do
// the divisions for all blocks.
struct ShareTiles {
  struct Sizes {
    int outputs, steps;
    int least;                        // outputs of a share
    int tiles[2], tile_outputs[2];    // of a share of `least` outputs, and of one more
    std::uint32_t starts, per_start;  // different first steps; 2^kStartBits over that, rounded up

    static constexpr int kStartBits = 24;

    static constexpr Sizes of(int outputs, int most_of_tile, int steps) {
      Sizes sizes{.outputs = outputs,
                  .steps = steps,
                  .least = outputs / kShares,
                  .tiles = {},
                  .tile_outputs = {},
                  .starts = static_cast<std::uint32_t>((steps + kStepsApart - 1) / kStepsApart),
                  .per_start = 0};
      for (int more = 0; more < 2; ++more) {
        const int count = sizes.least + more, tiles = (count + most_of_tile - 1) / most_of_tile;
        sizes.tiles[more] = tiles;
        sizes.tile_outputs[more] = tiles == 0 ? 0 : (count + tiles - 1) / tiles;
      }
      sizes.per_start = ((std::uint32_t{1} << kStartBits) + sizes.starts - 1) / sizes.starts;
      return sizes;
    }
  };

  int begin, end;                     // of the tile; of the share
  int num_tiles, height, tile_steps;  // outputs of a tile, except perhaps of the last; steps of each
  int share_step;                     // where all its sums begin

  static constexpr ShareTiles of_block(const Sizes& sizes, std::uint32_t block, std::uint32_t /*blocks*/) {
    const auto count = static_cast<std::uint32_t>(sizes.outputs);
    const auto begin = static_cast<int>(begin_of_part<std::uint32_t>(count, block, kShares));
    const auto end = static_cast<int>(begin_of_part<std::uint32_t>(count, block + 1, kShares));
    const bool more = end - begin > sizes.least;
    // block / starts: exact, as block * starts < 2^kStartBits.
    const auto turns = static_cast<std::uint32_t>(std::uint64_t{block} * sizes.per_start >> Sizes::kStartBits);
    return {.begin = begin,
            .end = end,
            .num_tiles = more ? sizes.tiles[1] : sizes.tiles[0],
            .height = more ? sizes.tile_outputs[1] : sizes.tile_outputs[0],
            .tile_steps = sizes.steps,
            .share_step = static_cast<int>(block - turns * sizes.starts) * kStepsApart};
  }

  constexpr int steps() const { return tile_steps; }
  constexpr int first_step() const { return share_step; }
  constexpr int count() const { return num_tiles; }
  constexpr int tile_outputs() const { return height < end - begin ? height : end - begin; }
  // Never to another share.
  constexpr bool advance() {
    begin += height;
    return false;
  }
};

}  // namespace heddle
