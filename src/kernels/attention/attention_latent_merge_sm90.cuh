// Merging the splits of a work item in the kernel of latent attention, through partial results in global memory. Neither
// flag nor fence says that one has arrived: its words are nonzero (attention_decode_merge_sm90.cuh, hide()).
#pragma once

#include <cmath>
#include <cstdint>

#include "base/tensor.h"
#include "kernels/attention/attention_decode_merge_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

// What a warp merges at a time: some elements of a row. Each unit has the row's largest score and sum to itself, because
// whoever reads them zeroes them.
inline constexpr int kUnitElements = 128;             // four for each lane
inline constexpr int kUnitWords = kUnitElements + 4;  // o, then the largest score and the sum; 16-byte aligned

// Of a partial result.
constexpr int latent_partial_words(int rows, int value_dim) {
  return rows * (value_dim / kUnitElements) * kUnitWords;
}

// The blocks that share an item, and where their partial results lie.
struct LatentParts {
  std::uint32_t* partials;
  int partial_words;
  int first_block, last_block;

  __device__ std::uint32_t* unit_of(int i, int unit) const {
    return partials + partial_index(first_block + i, i == 0) * partial_words + unit * kUnitWords;
  }
};

// Merges a unit into y, from element `at` on, kAtOnce partial results at a time, and zeroes them. One warp. Not inlined,
// because its callers have no registers left. After a timeout the unit is NaN, and partial results that were not read stay.
__device__ __noinline__ void merge_latent_unit(const LatentParts parts, int unit, void* y, std::int64_t at, DType dtype,
                                               const KernelWaits& waits) {
  constexpr int kAtOnce = 16;
  const int lane = static_cast<int>(threadIdx.x) % 32, count = parts.last_block - parts.first_block + 1;
  float largest = -INFINITY, sum = 0;
  float4 o{0, 0, 0, 0};
  for (int first = 0; first < count; first += kAtOnce) {
    const int here = min(kAtOnce, count - first);
    std::uint32_t* const mine = parts.unit_of(first + min(lane, here - 1), unit) + kUnitElements;  // one per lane
    std::uint32_t its_largest = 0, its_sum = 0;
    uint4 its_o[kAtOnce];
    // No block waits before it has stored its own partial results, and the whole grid is resident
    // (attention_decode_grid.h).
    const auto all_there = [&] {
      its_largest = load_relaxed(mine);
      its_sum = load_relaxed(mine + 1);
      std::uint32_t least = min(its_largest, its_sum);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (i < here) its_o[i] = load_four_relaxed(parts.unit_of(first + i, unit) + 4 * lane);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (i < here) least = min(least, least_of(its_o[i]));
      return __all_sync(~0u, least != 0) != 0;
    };
    if (!poll_partials(waits, count, first, all_there)) its_largest = 0;  // decodes to NaN
    if (lane < here) {
      store_relaxed(mine, 0);
      store_relaxed(mine + 1, 0);
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
    o.x *= correction, o.y *= correction, o.z *= correction, o.w *= correction;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= here) break;
      const float its_weight = __shfl_sync(~0u, weight, i);
      o.x = fmaf(its_weight, reveal(its_o[i].x), o.x);
      o.y = fmaf(its_weight, reveal(its_o[i].y), o.y);
      o.z = fmaf(its_weight, reveal(its_o[i].z), o.z);
      o.w = fmaf(its_weight, reveal(its_o[i].w), o.w);
      store_four_relaxed(parts.unit_of(first + i, unit) + 4 * lane, make_uint4(0, 0, 0, 0));
    }
  }
  store_four(y, at + 4 * lane, dtype, {o.x / sum, o.y / sum, o.z / sum, o.w / sum});
}

}  // namespace heddle::sm90
