// How the GEMM of a decode batch (linear_sm90_batch.cuh) divides rows of W. An output is a row of W; for linear_swiglu it is
// a row of gate and a row of up.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle {

// Each output is in one tile. The first `longer` tiles have one output more than `height`.
struct BatchTiles {
  int count, height, longer;

  // Of at most `most` outputs a tile, for a grid of `teams` clusters, each of which takes as many tiles where there are
  // enough outputs.
  static constexpr BatchTiles of(int outputs, int most, int teams) {
    const std::int64_t of_round = std::int64_t{most} * teams;
    const std::int64_t rounds = (outputs + of_round - 1) / of_round;
    const auto count = static_cast<int>(std::min<std::int64_t>(rounds * teams, outputs));
    return {.count = count, .height = outputs / count, .longer = outputs % count};
  }

  constexpr int begin(int tile) const { return tile * height + (tile < longer ? tile : longer); }
  constexpr int outputs(int tile) const { return tile < longer ? height + 1 : height; }
};

}  // namespace heddle
