// Merging in the decode kernel: the warps of a block through shared memory; the splits of a work item through
// distributed shared memory in a cluster, otherwise through partial results in global memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/checked.h"
#include "base/tensor.h"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_decode_sums_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

// The number of words of a partial result.
template <class Shared, int kHeadDim>
constexpr int partial_words() {
  return Shared::kRows * (kHeadDim + 2);
}

// The index in q or y of element d of a row of the split's work item.
__device__ inline std::int64_t element_of(const Tensor& rows, const DecodeParams& params, const DecodeSplit& split,
                                          int row, int d) {
  const int index = split.row_tile * params.item_rows + row;
  const int token = split.first_token + index / params.group;
  const int head = split.kv_head * params.group + index % params.group;
  return token * rows.row_stride + std::int64_t{head} * params.attention.kv.head_dim + d;
}

__device__ inline int rows_of(const DecodeParams& params, const DecodeSplit& split) {
  return min(params.item_rows, split.num_new * params.group - split.row_tile * params.item_rows);
}

// Stores elements d to d + 3 of a row.
__device__ inline void store_merged(const DecodeParams& params, const DecodeSplit& split, int row, int d, float4 o) {
  const Tensor& y = params.attention.y;
  store_four(y.data, element_of(y, params, split, row, d), y.dtype, o);
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

// Merges a row of y, from element `at` on, from partial results, kAtOnce at a time, and zeroes them. One warp. Not
// inlined, because its callers have no registers left. After a timeout the row is NaN, and partial results that were
// not read stay.
template <int kHeadDim, class Shared>
__device__ __noinline__ void merge_row_of_partials(std::uint32_t* all_partials, int first_block, int last_block,
                                                   int row, void* y, std::int64_t at, DType dtype,
                                                   const KernelWaits& waits) {
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
    if (d < kHeadDim) store_four(y, at + d, dtype, {o[f].x / sum, o[f].y / sum, o[f].z / sum, o[f].w / sum});
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

// Merges this block's rows of y from the item's partial results, if it is one of the mergers. All consumer threads; one
// warp per row.
template <int kHeadDim, class Shared>
__device__ void merge_partials(const DecodeParams& params, const DecodeSplit& split) {
  const Tensor& y = params.attention.y;
  const int rows = rows_of(params, split);
  const int first = blocks_after(split) * kDecodeWarps + static_cast<int>(threadIdx.x) / 32;
  for (int row = first; row < rows; row += mergers_of(params, split) * kDecodeWarps)
    merge_row_of_partials<kHeadDim, Shared>(params.partials, split.first_block, split.last_block, row, y.data,
                                            element_of(y, params, split, row, 0), y.dtype, params.waits);
}

// How many groups of four elements each block of the cluster merges: group i belongs to block i / fours_of_block.
__device__ inline int fours_of_block(const DecodeParams& params, const DecodeSplit& split) {
  const int fours = rows_of(params, split) * (params.attention.kv.head_dim / 4);
  return ceil_div(fours, params.cluster);
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

// Computes y from what the blocks of this cluster have pushed. All consumer threads.
template <int kHeadDim, class Shared>
__device__ void merge_pushed(const DecodeParams& params, const DecodeSplit& split, Shared& shared) {
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
    store_merged(params, split, i / (kHeadDim / 4), i % (kHeadDim / 4) * 4, merged.average());
  }
}

// Merges the warps' sums of a split into y, or into a partial result. All consumer threads.
template <class Shared>
__device__ void finish_split(const DecodeParams& params, const DecodeSplit& split,
                             RowSums<Shared::kHeadDim, Shared::kRowGroups>& sums, Shared& shared) {
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
      store_merged(params, split, row, d, merged.average());
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
  if (pushes) return merge_pushed<kHeadDim>(params, split, shared);
  sync_threads(kDecodeBarrier, kDecodeThreads);  // before the sums of the next split are stored
}

}  // namespace heddle::sm90
