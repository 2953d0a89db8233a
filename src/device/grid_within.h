// How large a grid may be on a lane: the blocks that are resident on the lane's SMs at once.
#pragma once

#include <algorithm>

namespace heddle {

struct GridSize {
  unsigned x = 1, y = 1;

  constexpr unsigned long long blocks() const { return 1ULL * x * y; }
  friend constexpr bool operator==(const GridSize&, const GridSize&) = default;
};

// Blocks that are resident on `num_sms` SMs at once, `blocks_of_sm` on each; at least one cluster, the smallest grid.
constexpr unsigned most_blocks(int num_sms, int blocks_of_sm, unsigned cluster) {
  return std::max(static_cast<unsigned>(num_sms) * static_cast<unsigned>(blocks_of_sm), cluster);
}

// Those of `most` blocks that clusters hold, of which so many are resident on the whole device: a cluster lies in one
// GPC, whose SMs may be no multiple of it.
constexpr unsigned most_in_clusters(unsigned most, unsigned cluster, int clusters_of_device) {
  return std::min(most / cluster, static_cast<unsigned>(clusters_of_device)) * cluster;
}

// The grid of a kernel whose blocks loop to x + gridDim.x and y + gridDim.y: `wanted`, or one of at most `most` blocks.
// Rows of blocks stay whole if one of them fits, and x stays a multiple of the cluster. Precondition: most >= cluster,
// and wanted.x is a multiple of the cluster.
constexpr GridSize grid_within(GridSize wanted, unsigned cluster, unsigned most) {
  if (wanted.blocks() <= most) return wanted;
  if (wanted.x <= most) return {wanted.x, most / wanted.x};
  return {most / cluster * cluster, 1};
}

}  // namespace heddle
