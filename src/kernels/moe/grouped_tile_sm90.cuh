// The tiles that the rows of all groups are cut into. How many a group has is known on the device alone: a grid has as
// many as there can be, and a block without a tile ends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace heddle {

struct GroupTile {
  int group, first, rows;  // up to the tile's height from row `first` on; no rows: there is no such tile
};

// Tile `tile`, counted over all groups, of up to kHeight rows of one group. All lanes of a warp.
template <int kHeight>
__device__ GroupTile find_group_tile(const std::int32_t* first_row, int count, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int from = 0; from < count; from += 32) {
    const int begin = first_row[min(from + lane, count)], end = first_row[min(from + lane + 1, count)];
    const int tiles = ceil_div(end - begin, kHeight);
    int up_to = tiles;
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to += before;
    }
    const unsigned beyond = __ballot_sync(~0u, up_to > tile);
    if (beyond != 0) {
      const int at = __ffs(static_cast<int>(beyond)) - 1;
      const int first = __shfl_sync(~0u, begin, at) + (tile - __shfl_sync(~0u, up_to - tiles, at)) * kHeight;
      return {from + at, first, min(kHeight, __shfl_sync(~0u, end, at) - first)};
    }
    tile -= __shfl_sync(~0u, up_to, 31);
  }
  return {0, 0, 0};
}

// The most tiles that `num_rows` rows of `count` groups have.
template <int kHeight>
std::int64_t most_group_tiles(std::int64_t num_rows, int count) {
  return num_rows / kHeight + std::min<std::int64_t>(num_rows, count);
}

}  // namespace heddle
