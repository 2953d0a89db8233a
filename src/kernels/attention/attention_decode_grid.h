// The grid of decode attention: how many blocks, in what clusters.
//
// Blocks that share a work item wait for each other, in either order of their indices. So the whole grid must be
// resident, and it counts only SMs that no other waiting kernel can hold. Kernels of the same stream never hold them:
// those ahead end, and those behind start only after every block of this grid has started (let_later_kernels_start()).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace heddle {

inline constexpr int kMaxDecodeBlocks = 256;
inline constexpr int kMostOfCluster = 16;  // blocks

// Cluster sizes in blocks. Smaller clusters, for more items, were slower than none.
inline constexpr std::array kClusterBlocks = {16, 12, 10, 8};
static_assert(kClusterBlocks.front() <= kMostOfCluster);

// How many clusters of each size are resident on the device at once, with one block per SM.
using ClustersAtOnce = std::array<int, kClusterBlocks.size()>;

struct DecodeGrid {
  int cluster, blocks;
};

// The grid for a lane of any `sms` SMs of a device with `other_sms` more. Takes the largest clusters of which one per
// item is resident, and as many of them as are resident; items of many tiles are split over all blocks. A batch has no
// clusters, because its sequences may differ much in length.
//
// All blocks of a cluster run on SMs of one GPC. So an SM outside the lane may cost a whole cluster, but no more than
// one: a GPC that loses an SM holds at most one cluster fewer.
constexpr DecodeGrid decode_grid(const ClustersAtOnce& clusters, int num_sequences, int items, int sms, int other_sms) {
  const int most = std::clamp(sms, 1, kMaxDecodeBlocks);
  for (std::size_t i = 0; num_sequences == 1 && i < clusters.size(); ++i) {
    const int cluster = kClusterBlocks[i], room = clusters[i] - other_sms;
    if (room >= items && most / cluster >= items) return {cluster, std::min(room, most / cluster) * cluster};
  }
  return {1, most};
}

}  // namespace heddle
