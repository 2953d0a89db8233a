// How the GEMM of a decode batch (linear_sm90_batch.cuh) divides rows of W. An output is a row of W; for linear_swiglu it is
// a row of gate and a row of up.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle {

// Each output is in one tile. Tiles are whole groups of kGroup outputs, except where all outputs end, so that threads store
// several neighbours at once. The first `longer` tiles have one group more than `groups`.
struct BatchTiles {
  static constexpr int kGroup = 8;

  int all, count, groups, longer;

  // Of at most `most` outputs a tile, a multiple of kGroup, for a grid of `teams` clusters, each of which takes as many
  // tiles where there are enough outputs.
  static constexpr BatchTiles of(int outputs, int most, int teams) {
    const int groups = (outputs + kGroup - 1) / kGroup;
    const std::int64_t of_round = std::int64_t{most / kGroup} * teams;
    const std::int64_t rounds = (groups + of_round - 1) / of_round;
    const auto count = static_cast<int>(std::min<std::int64_t>(rounds * teams, groups));
    return {.all = outputs, .count = count, .groups = groups / count, .longer = groups % count};
  }

  constexpr int begin(int tile) const { return kGroup * (tile * groups + (tile < longer ? tile : longer)); }
  constexpr bool is_longer(int tile) const { return tile < longer; }
  // Of whole groups, which go beyond the end of all outputs where the last group is not full.
  constexpr int height(int tile) const { return kGroup * (is_longer(tile) ? groups + 1 : groups); }
  constexpr int outputs(int tile) const { return std::min(height(tile), all - begin(tile)); }
};

}  // namespace heddle
