// Merging in the decode kernel: the warps of a block through shared memory; the splits of a work item through
// distributed shared memory in a cluster, otherwise through partial results in global memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/checked.h"
#include "device/group.h"
#include "kernels/attention/attention_decode_output_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_decode_sums_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

// The number of words of a partial result.
template <class Shared, int kHeadDim>
constexpr int partial_words() {
  return Shared::kRows * (kHeadDim + 2);
}

// The index of a block's partial result: of the item that it continues, or of the one that it begins.
__device__ inline std::int64_t partial_index(int block, bool begins) {
  return std::int64_t{block} * 2 + (begins ? 1 : 0);
}

// The encoding of a number in a partial result, which is never zero. A NaN that no instruction produces encodes zero.
inline constexpr std::uint32_t kHiddenZero = 0x7fd1a5c3, kOtherNan = 0x7fffffff;

__device__ inline std::uint32_t hide(float number) {
  const std::uint32_t bits = __float_as_uint(number);
  return (bits == kHiddenZero ? kOtherNan : bits) ^ kHiddenZero;
}
__device__ inline float reveal(std::uint32_t hidden) {
  return __uint_as_float(hidden ^ kHiddenZero);
}
// Zero if one of them has not arrived.
__device__ inline std::uint32_t least_of(const uint4& hidden) {
  return min(min(hidden.x, hidden.y), min(hidden.z, hidden.w));
}

// Calls `all_there` until it is true. False when it gave up, at partial result `first` of `count`. One warp. Not
// spin_until(), which has the test twice: all blocks come here at the kernel's end, with its code not cached.
template <class Test>
__device__ inline bool poll_partials(const KernelWaits& waits, int count, int first, const Test& all_there) {
  WarpWaitDeadline deadline;
  for (std::uint32_t tries = 1; !all_there(); ++tries)
    if (is_time_to_look(tries) &&
        deadline.is_over(waits, static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(first)))
      return false;
  return true;
}

// Merges a row, which goes to `to`, from partial results, kAtOnce at a time, and zeroes them. One warp. Not inlined,
// because its callers have no registers left. After a timeout the row is NaN, and partial results that were not read
// stay.
template <int kHeadDim, class Shared, class Row>
__device__ __noinline__ void merge_row_of_partials(std::uint32_t* all_partials, int first_block, int last_block,
                                                   int row, Row to, const KernelWaits& waits) {
  constexpr int kFours = ceil_div(kHeadDim, 4 * 32);  // groups of four elements per lane
  constexpr int kAtOnce = kFours == 1 ? 16 : 8;       // partial results whose loads are in flight
  const int lane = static_cast<int>(threadIdx.x) % 32, count = last_block - first_block + 1;
  const auto partial_of = [&](int i) {
    return all_partials + partial_index(first_block + i, i == 0) * partial_words<Shared, kHeadDim>();
  };
  float largest = -INFINITY, sum = 0;
  float4 o[kFours] = {};
  for (int first = 0; first < count; first += kAtOnce) {
    const int here = min(kAtOnce, count - first);
    std::uint32_t* const mine =
        partial_of(first + min(lane, here - 1)) + Shared::kRows * kHeadDim + row;  // one partial result per lane
    std::uint32_t its_largest = 0, its_sum = 0;
    uint4 its_o[kAtOnce][kFours];
    // No block waits before it has stored its own partial results, and the whole grid is resident
    // (attention_decode_grid.h).
    const auto all_there = [&] {
      its_largest = load_relaxed(mine);
      its_sum = load_relaxed(mine + Shared::kRows);
      std::uint32_t least = min(its_largest, its_sum);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int f = 0; f < kFours; ++f)
          if (i < here)
            its_o[i][f] =
                load_four_relaxed(partial_of(first + i) + row * kHeadDim + 4 * min(lane + 32 * f, kHeadDim / 4 - 1));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int f = 0; f < kFours; ++f)
          if (i < here) least = min(least, least_of(its_o[i][f]));
      return __all_sync(~0u, least != 0) != 0;
    };
    if (!poll_partials(waits, count, first, all_there)) its_largest = 0;  // decodes to NaN
    if (lane < here) {
      store_relaxed(mine, 0);
      store_relaxed(mine + Shared::kRows, 0);
    }
    const float partial_largest = lane < here ? reveal(its_largest) : -INFINITY;
    float top = partial_largest;
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(top, largest);
    const float shift = top == -INFINITY ? 0 : top;
    const float correction = exp2_approx(largest - shift), weight = exp2_approx(partial_largest - shift);
    float partial_sum = lane < here ? reveal(its_sum) * weight : 0;
    for (int step = 16; step > 0; step /= 2) partial_sum += __shfl_xor_sync(~0u, partial_sum, step);
    sum = fmaf(sum, correction, partial_sum);
    largest = top;
#pragma unroll
    for (int f = 0; f < kFours; ++f)
      o[f].x *= correction, o[f].y *= correction, o[f].z *= correction, o[f].w *= correction;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= here) break;
      const float its_weight = __shfl_sync(~0u, weight, i);
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        o[f].x = fmaf(its_weight, reveal(its_o[i][f].x), o[f].x);
        o[f].y = fmaf(its_weight, reveal(its_o[i][f].y), o[f].y);
        o[f].z = fmaf(its_weight, reveal(its_o[i][f].z), o[f].z);
        o[f].w = fmaf(its_weight, reveal(its_o[i][f].w), o[f].w);
        if (lane + 32 * f < kHeadDim / 4)
          store_four_relaxed(partial_of(first + i) + row * kHeadDim + 4 * (lane + 32 * f), make_uint4(0, 0, 0, 0));
      }
    }
  }
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    const int d = 4 * (lane + 32 * f);
    if (d < kHeadDim) to.store(d, {.largest = largest, .sum = sum, .o = o[f]});
  }
}

// How many of an item's blocks merge it, counted from the last one: only the last one where the blocks may have other
// items.
__device__ inline int mergers_of(const DecodeParams& params, const DecodeSplit& split) {
  if (split.kind != SplitKind::equal) return 1;
  return min(split.last_block - split.first_block + 1, ceil_div(rows_of(params, split), kDecodeWarps));
}

// The number of the item's blocks after this one.
__device__ inline int blocks_after(const DecodeSplit& split) {
  return split.last_block - static_cast<int>(blockIdx.x);
}

// Merges this block's rows from the item's partial results, if it is one of the mergers. All consumer threads; one warp
// per row. `may_store`: see finish_split().
template <int kHeadDim, class Shared, class Output>
__device__ void merge_partials(const DecodeParams& params, const DecodeSplit& split, const Output& output,
                               bool may_store) {
  if (!may_store) return;
  const int rows = rows_of(params, split);
  const int first = blocks_after(split) * kDecodeWarps + static_cast<int>(threadIdx.x) / 32;
  for (int row = first; row < rows; row += mergers_of(params, split) * kDecodeWarps) {
    merge_row_of_partials<kHeadDim, Shared>(params.partials, split.first_block, split.last_block, row,
                                            output.row(params, split, row), params.waits);
    output.stored(DeviceWarp{}, params, split, kHeadDim / 4);
  }
}

__device__ inline int fours_of_item(const DecodeParams& params, const DecodeSplit& split) {
  return rows_of(params, split) * (params.attention.kv.head_dim / 4);
}

// How many groups of four elements each block of the cluster merges: group i belongs to block i / fours_of_block.
__device__ inline int fours_of_block(const DecodeParams& params, const DecodeSplit& split) {
  return ceil_div(fours_of_item(params, split), params.cluster);
}

// Sends group i of this block's partial result to the block that merges it.
template <class Shared>
__device__ void push_to_merger(const DecodeParams& params, const DecodeSplit& split, int i, const MergedRow& merged,
                               Shared& shared) {
  const int share = fours_of_block(params, split), merger = i / share, at = i - merger * share;
  const int rank = static_cast<int>(blockIdx.x) - split.first_block;
  if (rank > split.last_block - split.first_block) return;  // has no tiles
  const auto there = [&](const auto& mine) { return address_in_block(shared_address(&mine), merger); };
  const std::uint32_t barrier = there(shared.all_pushed);
  push_four(there(shared.pushed[rank * share + at]), merged.o, barrier);
  push_two(there(shared.pushed_weights[rank * share + at]), {merged.largest, merged.sum}, barrier);
}

// Merges what the blocks of this cluster have pushed. All consumer threads.
template <int kHeadDim, class Shared, class Output>
__device__ void merge_pushed(const DecodeParams& params, const DecodeSplit& split, Shared& shared, const Output& output,
                             bool may_store) {
  const int count = split.last_block - split.first_block + 1;
  const int rank = static_cast<int>(blockIdx.x) - split.first_block;
  const int fours = rows_of(params, split) * (kHeadDim / 4), share = fours_of_block(params, split);
  const int begin = rank * share, end = min(fours, begin + share);
  if (begin >= end) return;
  if (threadIdx.x == 0)
    shared.all_pushed.arrive_expecting(static_cast<std::uint32_t>((end - begin) * count) *
                                       (sizeof(float4) + sizeof(float2)));
  shared.all_pushed.template wait<WaitDeadline, Writers::cluster>(params.waits, 0);
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kDecodeThreads) {
    const MergedRow merged = merge_row<kMostOfCluster>(
        count, [&](int p) { return shared.pushed_weights[p * share + i - begin].x; },
        [&](int p) { return shared.pushed_weights[p * share + i - begin].y; },
        [&](int p) { return shared.pushed[p * share + i - begin]; });
    if (may_store) output.row(params, split, i / (kHeadDim / 4)).store(i % (kHeadDim / 4) * 4, merged);
  }
  if (may_store) output.stored(decode_consumers(), params, split, end - begin);
}

// Whether this block stores rows of the split's item: after its last tile, or when it merges.
__device__ inline bool stores_rows(const DecodeParams& params, const DecodeSplit& split) {
  if (split.whole()) return split.begin < split.end;
  const int rank = static_cast<int>(blockIdx.x) - split.first_block;
  if (split.kind == SplitKind::cluster) return rank * fours_of_block(params, split) < fours_of_item(params, split);
  return blocks_after(split) < mergers_of(params, split);
}

// Merges the warps' sums of a split into rows of its item, or into a partial result. All consumer threads. `may_store`:
// what output.may_store() said.
template <class Shared, class Output>
__device__ void finish_split(const DecodeParams& params, const DecodeSplit& split,
                             RowSums<Shared::kHeadDim, Shared::kRowGroups>& sums, Shared& shared, const Output& output,
                             bool may_store) {
  constexpr int kHeadDim = Shared::kHeadDim, kRowGroups = Shared::kRowGroups;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int rows = rows_of(params, split);
  if (split.whole() && split.begin == split.end) return;  // another block of the cluster has the whole item
  sums.add_lanes();
#pragma unroll
  for (int n = 0; n < kRowGroups; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 8 * n + lane % 4 * 2 + r;
      if (lane < 4) {
        shared.largest[warp][row] = sums.largest[n][r];
        shared.sum[warp][row] = sums.sum[n][r];
      }
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          shared.o[warp][row][16 * i + 8 * half + lane / 4] = sums.o[n][i][2 * half + r];
    }
  }
  sync_threads(kDecodeBarrier, kDecodeThreads);

  const bool pushes = split.kind == SplitKind::cluster && !split.whole();
  if (pushes) wait_for_cluster();  // all blocks have started
  std::uint32_t* const partial =
      params.partials + partial_index(static_cast<int>(blockIdx.x), split.first_block == static_cast<int>(blockIdx.x)) *
                            partial_words<Shared, kHeadDim>();
  for (int i = thread; i < rows * (kHeadDim / 4); i += kDecodeThreads) {
    const int row = i / (kHeadDim / 4), d = i % (kHeadDim / 4) * 4;
    const MergedRow merged = merge_row<kDecodeWarps>(
        kDecodeWarps, [&](int w) { return shared.largest[w][row]; }, [&](int w) { return shared.sum[w][row]; },
        [&](int w) { return *reinterpret_cast<const float4*>(&shared.o[w][row][d]); });
    if (split.whole()) {
      if (may_store) output.row(params, split, row).store(d, merged);
    } else if (pushes) {
      push_to_merger(params, split, i, merged, shared);
    } else {
      store_four_relaxed(partial + row * kHeadDim + d,
                         make_uint4(hide(merged.o.x), hide(merged.o.y), hide(merged.o.z), hide(merged.o.w)));
      if (d == 0) {
        store_relaxed(partial + Shared::kRows * kHeadDim + row, hide(merged.largest));
        store_relaxed(partial + Shared::kRows * (kHeadDim + 1) + row, hide(merged.sum));
      }
    }
  }
  if (pushes) return merge_pushed<kHeadDim>(params, split, shared, output, may_store);
  if (split.whole() && may_store) output.stored(decode_consumers(), params, split, rows * (kHeadDim / 4));
  sync_threads(kDecodeBarrier, kDecodeThreads);  // before the sums of the next split are stored
}

}  // namespace heddle::sm90
