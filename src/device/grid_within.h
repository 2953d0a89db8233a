// How large a grid may be on a lane: what the lane's SMs hold at a time.
#pragma once

#include <algorithm>

namespace heddle {

struct GridSize {
  unsigned x = 1, y = 1;

  constexpr unsigned long long blocks() const { return 1ULL * x * y; }
  friend constexpr bool operator==(const GridSize&, const GridSize&) = default;
};

// Blocks that `num_sms` SMs hold at a time, `blocks_of_sm` each; one cluster at least, as a kernel cannot run with
// less.
constexpr unsigned most_blocks(int num_sms, int blocks_of_sm, unsigned cluster) {
  return std::max(static_cast<unsigned>(num_sms) * static_cast<unsigned>(blocks_of_sm), cluster);
}

// The grid of a kernel whose blocks go on to x + gridDim.x and y + gridDim.y: as `wanted`, or of at most `most` blocks.
// Rows of blocks stay whole where one of them fits, and x a multiple of the cluster. Precondition: most >= cluster, and
// wanted.x is a multiple of the cluster.
constexpr GridSize grid_within(GridSize wanted, unsigned cluster, unsigned most) {
  if (wanted.blocks() <= most) return wanted;
  if (wanted.x <= most) return {wanted.x, most / wanted.x};
  return {most / cluster * cluster, 1};
}

}  // namespace heddle
