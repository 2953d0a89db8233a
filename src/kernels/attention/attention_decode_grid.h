// How many blocks decode attention is launched with, and in what clusters.
//
// Blocks that share an item wait for each other, those with the last parts for all others, in either order of their
// indices. So all of the grid must be resident at once, and the grid counts only on SMs that no kernel can hold which
// waits itself. Kernels of the same stream are none of those: those ahead end, and those behind start only once every
// block of this grid has started (let_later_kernels_start()).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace heddle {

inline constexpr int kMaxDecodeBlocks = 256;
inline constexpr int kMostOfCluster = 16;  // blocks

// Numbers of blocks of a cluster. Smaller ones, for more items, were slower than no clusters at all.
inline constexpr std::array kClusterBlocks = {16, 12, 10, 8};
static_assert(kClusterBlocks.front() <= kMostOfCluster);

// How many clusters of each size the device holds at once, with a block an SM.
using ClustersAtOnce = std::array<int, kClusterBlocks.size()>;

struct DecodeGrid {
  int cluster, blocks;
};

// For a lane of `sms` SMs, whichever they are, of a device that has `other_sms` more. The largest clusters of which
// there is room for one for every item at once, and as many of them as there is room for: items of many tiles are
// shared out to all blocks. Sequences of a batch may be of very different lengths: then no clusters.
//
// All blocks of a cluster are on SMs that lie together, so an SM that is not the lane's may cost a whole cluster; no
// more than one, as each SM is of one group and a group that loses an SM holds at most one cluster fewer.
constexpr DecodeGrid decode_grid(const ClustersAtOnce& clusters, int num_sequences, int items, int sms, int other_sms) {
  const int most = std::clamp(sms, 1, kMaxDecodeBlocks);
  for (std::size_t i = 0; num_sequences == 1 && i < clusters.size(); ++i) {
    const int cluster = kClusterBlocks[i], room = clusters[i] - other_sms;
    if (room >= items && most / cluster >= items) return {cluster, std::min(room, most / cluster) * cluster};
  }
  return {1, most};
}

}  // namespace heddle
