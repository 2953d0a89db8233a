// The largest logit of a row, found by a cluster whose blocks share the row: the first step of argmax and sample.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "device/launch_sm90.cuh"

namespace heddle {

// Blocks per row, in one cluster: the largest portable cluster size. A single block takes the row where clusters might
// not be schedulable on the lane's SMs (row_blocks_on()). The result does not depend on the number.
inline constexpr int kRowBlocks = 8;

// A token and its logit. No token: id kNoToken.
struct Scored {
  double logit;
  std::int32_t id;
};
inline constexpr std::int32_t kNoToken = 0x7fffffff;

// The larger logit, of equal ones the smaller id: independent of the order of candidates.
__device__ inline Scored better(const Scored& a, const Scored& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id) ? a : b;
}

// What the cluster knows of a row.
struct RowSummary {
  Scored largest;
  int unsound;  // whether there is NaN or +infinity
  int finite;   // whether there is a finite logit
};

__device__ inline RowSummary join(const RowSummary& a, const RowSummary& b) {
  return {better(a.largest, b.largest), a.unsound | b.unsound, a.finite | b.finite};
}

// Reduces the threads' summaries over the cluster; all threads call it and get the result. `warps` and `block` are in
// shared memory and used by this call only.
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

// The blocks per row with which `kernel`, launched as `shape` says, is schedulable on any choice of the lane's SMs. An
// SM outside the lane costs at most one cluster of kRowBlocks: it belongs to one GPC, which loses at most one.
template <class... Params>
int row_blocks_on(const char* op, void (*kernel)(Params...), const LaunchShape& shape, const Lane& lane) {
  const int others = lane.num_other_sms();
  return others == 0 ||
                 clusters_of_device(op, reinterpret_cast<const void*>(kernel), shape, lane.stream.device()) > others
             ? kRowBlocks
             : 1;
}

}  // namespace heddle
