// The state of a block of the decode kernel: its shared memory, and the sums of its warps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "device/group.h"
#include "device/tma_ring.h"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_sm90_tiles.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kDecodeWarps = kDecodeKeys / 16;     // consumers
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;  // of the consumer warps
inline constexpr int kDecodeBarrier = 1;                  // the consumers' named barrier

__device__ inline DeviceWarps decode_consumers() {
  return {0, kDecodeWarps, kDecodeBarrier};
}

// KiB of tiles in flight or being multiplied. With many sequences, more are not faster and delay the next GEMM's
// weights; a single sequence takes more (docs/notes/attention_gpu.md). Heads of 256 have two tiles either way.
inline constexpr int kDecodeStageKib = 96, kDecodeStageKibOfOne = 160;

template <int kHeadDim>
constexpr int decode_stages(int kib) {
  return std::max(2, (kib << 10) / (2 * Tile<kDecodeKeys, kHeadDim>::kBytes));
}

// kRowGroups: groups of eight rows (pairs of new token and query head) that share loaded keys. kStages: tiles in the
// ring.
template <int kHeadDim_, int kRowGroups_, int kStages_>
struct DecodeShared {
  static constexpr int kHeadDim = kHeadDim_, kRowGroups = kRowGroups_, kStages = kStages_;
  using KeyTile = Tile<kDecodeKeys, kHeadDim>;
  static constexpr int kRows = 8 * kRowGroups;
  static constexpr int kMergeStride = kHeadDim + 4;  // padded so that warps store fragments without bank conflicts

  struct Stage {
    std::byte keys[KeyTile::kBytes];
    std::byte values[KeyTile::kBytes];
  };
  Stage stages[kStages];
  float o[kDecodeWarps][kRows][kMergeStride];
  float largest[kDecodeWarps][kRows], sum[kDecodeWarps][kRows];
  TmaRing<Mbarrier, kStages> ring;

  // Pushed partial results, one per block of the cluster, of the elements that this block merges: four elements of a
  // row, and the row's largest score and sum.
  static constexpr int kMostPushedFours = kRows * kHeadDim / 4 + kMostOfCluster;
  float4 pushed[kMostPushedFours];
  float2 pushed_weights[kMostPushedFours];
  Mbarrier all_pushed;
};

// A warp's sums of a split. A lane has rows 8 * n + 2 * (lane % 4) + {0, 1} of each group n: the largest score, the sum
// of its own weights, and in o elements 16 * i + lane / 4 + {0, 8} of the weighted values, in mma.sync's layout of o^T.
template <int kHeadDim, int kRowGroups>
struct RowSums {
  float largest[kRowGroups][2], sum[kRowGroups][2];
  float o[kRowGroups][kHeadDim / 16][4];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kRowGroups; ++n) {
      largest[n][0] = largest[n][1] = -INFINITY;
      sum[n][0] = sum[n][1] = 0;
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i) o[n][i][0] = o[n][i][1] = o[n][i][2] = o[n][i][3] = 0;
    }
  }

  // Reduces each lane's sums over all lanes of the row.
  __device__ void add_lanes() {
#pragma unroll
    for (int n = 0; n < kRowGroups; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        for (int step = 4; step < 32; step *= 2) sum[n][r] += __shfl_xor_sync(~0u, sum[n][r], step);
  }

  // Replaces the scores s of keys lane / 4 + {0, 8} by weights, and updates the sums of group n.
  __device__ void weigh(float (&s)[4], int n) {
    float correction[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(s[r], s[2 + r]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      top = fmaxf(top, largest[n][r]);
      const float shift = top == -INFINITY ? 0 : top;  // if the row has seen no key yet
      correction[r] = exp2_approx(largest[n][r] - shift);
      largest[n][r] = top;
      s[r] = exp2_approx(s[r] - shift);
      s[2 + r] = exp2_approx(s[2 + r] - shift);
      sum[n][r] = fmaf(sum[n][r], correction[r], s[r] + s[2 + r]);
    }
    if (__all_sync(~0u, correction[0] == 1 && correction[1] == 1)) return;
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) o[n][i][j] *= correction[j % 2];
  }
};

// Some elements of a row: weighted values summed relative to the largest score so far.
struct MergedRow {
  float largest, sum;
  float4 o;

  __device__ float4 average() const { return {o.x / sum, o.y / sum, o.z / sum, o.w / sum}; }
};

// Merges a row from `count` <= kMost partial results with different maxima. Each has a largest score, a sum and four
// elements. Loads of several partial results are in flight together.
template <int kMost, class LargestOf, class SumOf, class FourOf>
__device__ MergedRow merge_row(int count, LargestOf largest_of, SumOf sum_of, FourOf four_of) {
  constexpr int kAtOnce = std::min(kMost, 8);
  float largest[kMost], sum[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    largest[i] = i < count ? largest_of(i) : -INFINITY;
    sum[i] = i < count ? sum_of(i) : 0;
  }
  float4 o[kAtOnce];
  MergedRow merged{.largest = -INFINITY, .sum = 0, .o = {0, 0, 0, 0}};
#pragma unroll
  for (int first = 0; first < kMost; first += kAtOnce) {
    if (first > 0 && first >= count) break;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) o[i] = first + i < count ? four_of(first + i) : float4{0, 0, 0, 0};
    if (first == 0)
#pragma unroll
      for (int i = 0; i < kMost; ++i) merged.largest = fmaxf(merged.largest, largest[i]);
    const float shift = merged.largest == -INFINITY ? 0 : merged.largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = exp2_approx(largest[first + i] - shift);
      merged.sum = fmaf(weight, sum[first + i], merged.sum);
      merged.o.x = fmaf(weight, o[i].x, merged.o.x);
      merged.o.y = fmaf(weight, o[i].y, merged.o.y);
      merged.o.z = fmaf(weight, o[i].z, merged.o.z);
      merged.o.w = fmaf(weight, o[i].w, merged.o.w);
    }
  }
  return merged;
}

}  // namespace heddle::sm90
