// The largest logit of a row, found by a cluster of blocks that share the row: what argmax and sample begin with.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "device/launch_sm90.cuh"

namespace heddle {

// Blocks that take a row, of one cluster: the most that every GPU of this kind starts. One alone takes it where a
// lane's SMs may lie so that no cluster finds room (row_blocks_on()). What they find does not depend on how many they
// are.
inline constexpr int kRowBlocks = 8;

// A token and its logit. No token: id kNoToken.
struct Scored {
  double logit;
  std::int32_t id;
};
inline constexpr std::int32_t kNoToken = 0x7fffffff;

// Larger first, of equal ones the smaller id: the same whatever the order in which candidates are met.
__device__ inline Scored better(const Scored& a, const Scored& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id) ? a : b;
}

// What a cluster has seen of a row.
struct RowSummary {
  Scored largest;
  int unsound;  // NaN or +infinity was there
  int finite;   // a finite logit was
};

__device__ inline RowSummary join(const RowSummary& a, const RowSummary& b) {
  return {better(a.largest, b.largest), a.unsound | b.unsound, a.finite | b.finite};
}

// Joins what the threads of the cluster have seen; all of them call it and get the same. `warps` and `block` lie in
// shared memory, and are this call's alone.
template <int kThreads, int kBlocks>
__device__ RowSummary join_over_cluster(RowSummary mine, RowSummary (&warps)[kThreads / 32], RowSummary& block) {
  static_assert(kThreads / 32 <= 32);
  const auto join_over_warp = [](RowSummary summary) {
    for (int distance = 16; distance > 0; distance /= 2)
      summary = join(summary, {{__shfl_xor_sync(~0u, summary.largest.logit, distance),
                                __shfl_xor_sync(~0u, summary.largest.id, distance)},
                               __shfl_xor_sync(~0u, summary.unsound, distance),
                               __shfl_xor_sync(~0u, summary.finite, distance)});
    return summary;
  };
  const int thread = static_cast<int>(threadIdx.x);
  mine = join_over_warp(mine);
  if (thread % 32 == 0) warps[thread / 32] = mine;
  __syncthreads();
  if (thread < 32) {
    mine = join_over_warp(warps[thread % (kThreads / 32)]);
    if (thread == 0) block = mine;
  }
  auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  RowSummary all = *cluster.map_shared_rank(&block, 0);
#pragma unroll
  for (int rank = 1; rank < kBlocks; ++rank) all = join(all, *cluster.map_shared_rank(&block, rank));
  return all;
}

// Blocks a row of `kernel`, launched in clusters of kRowBlocks as `shape` says, that find room on the lane wherever its
// SMs lie. Each SM that is not the lane's costs one cluster at most: SMs are in groups, of which one may be full but
// for less than a cluster.
template <class... Params>
int row_blocks_on(const char* op, void (*kernel)(Params...), const LaunchShape& shape, const Lane& lane) {
  const int others = lane.num_other_sms();
  return others == 0 ||
                 clusters_of_device(op, reinterpret_cast<const void*>(kernel), shape, lane.stream.device()) > others
             ? kRowBlocks
             : 1;
}

}  // namespace heddle
