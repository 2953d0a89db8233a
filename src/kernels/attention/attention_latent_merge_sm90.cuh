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

// What a warp merges at a time: some elements of a row. Of few partial results a warp takes 128 elements, four a lane; of more
// its lanes are groups, which take every second or fourth result of fewer elements. Each unit has the row's largest score and
// sum to itself, because whoever reads them zeroes them.
struct LatentUnits {
  static constexpr int kAtOnce = 8;  // partial results whose loads a lane has in flight
  static constexpr int kMostGroups = 4;
  static constexpr int kMostElements = 128;

  int groups;

  // Of an item with this many partial results.
  static __device__ LatentUnits of(int count) {
    return {count <= kAtOnce ? 1 : count <= 2 * kAtOnce ? 2 : kMostGroups};
  }
  __host__ __device__ constexpr int elements() const { return kMostElements / groups; }
  // o, then the largest score and the sum; 16-byte aligned.
  __host__ __device__ constexpr int words() const { return elements() + 4; }
  __host__ __device__ constexpr int of_row(int value_dim) const { return value_dim / elements(); }
};

// The most of a partial result.
constexpr int latent_partial_words(int rows, int value_dim) {
  constexpr LatentUnits kSmallest{LatentUnits::kMostGroups};
  return rows * kSmallest.of_row(value_dim) * kSmallest.words();
}

// Merges a unit of `count` partial results into y, from element `to` on, kGroups * kAtOnce of them at a time, and zeroes them.
// `results`: of the first block of the item, kPartialWords each, two of each block. One warp. Not inlined, because its callers
// have no registers left. After a timeout the unit is NaN, and partial results that were not read stay.
template <int kGroups, int kPartialWords>
__device__ __noinline__ void merge_latent_unit(std::uint32_t* results, int count, int unit, void* y, std::int64_t to,
                                               DType dtype, const KernelWaits& waits) {
  constexpr LatentUnits kUnits{kGroups};
  constexpr int kAtOnce = LatentUnits::kAtOnce, kInRound = kGroups * kAtOnce, kLanesOfGroup = 32 / kGroups;
  constexpr int kOfLane = (kInRound + 31) / 32;  // results whose largest score and sum a lane has
  constexpr int kStride = 2 * kPartialWords;     // the first block's result is its second one, the others' their first
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / kLanesOfGroup, first_element = lane % kLanesOfGroup * 4;
  std::uint32_t* const units = results + unit * kUnits.words();
  float largest = -INFINITY, sum = 0;
  float4 o{0, 0, 0, 0};
  for (int first = 0; first < count; first += kInRound) {
    const int here = min(kInRound, count - first), of_group = here - group;  // result i * kGroups exists if < of_group
    std::uint32_t* const mine = units + (first + group) * kStride + first_element;
    const int begins = first + group == 0 ? kPartialWords : 0;
    const auto words_of = [&](int i) { return mine + i * kGroups * kStride + (i == 0 ? begins : 0); };
    const auto ends_of = [&](int j) {
      const int result = first + 32 * j + lane;
      return units + result * kStride + (result == 0 ? kPartialWords : 0) + kUnits.elements();
    };
    std::uint32_t its_largest[kOfLane], its_sum[kOfLane];
    uint4 its_o[kAtOnce];
    // No block waits before it has stored its own partial results, and the whole grid is resident
    // (attention_decode_grid.h).
    const auto all_there = [&] {
      std::uint32_t least = ~0u;
#pragma unroll
      for (int j = 0; j < kOfLane; ++j) {
        its_largest[j] = its_sum[j] = ~0u;
        if (32 * j + lane >= here) continue;
        its_largest[j] = load_relaxed(ends_of(j));
        its_sum[j] = load_relaxed(ends_of(j) + 1);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (i * kGroups < of_group) its_o[i] = load_four_relaxed(words_of(i));
#pragma unroll
      for (int j = 0; j < kOfLane; ++j) least = min(least, min(its_largest[j], its_sum[j]));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (i * kGroups < of_group) least = min(least, least_of(its_o[i]));
      return __all_sync(~0u, least != 0) != 0;
    };
    const bool arrived = poll_partials(waits, count, first, all_there);
    float top = -INFINITY, weight[kOfLane];
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      weight[j] = -INFINITY;  // the largest score, for now
      if (32 * j + lane >= here) continue;
      store_relaxed(ends_of(j), 0);
      store_relaxed(ends_of(j) + 1, 0);
      weight[j] = reveal(arrived ? its_largest[j] : 0);  // 0 decodes to NaN
      top = fmaxf(top, weight[j]);
    }
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(top, largest);
    const float shift = top == -INFINITY ? 0 : top;
    const float correction = exp2_approx(largest - shift);
    float partial_sum = 0;
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      weight[j] = exp2_approx(weight[j] - shift);
      if (32 * j + lane < here) partial_sum = fmaf(reveal(its_sum[j]), weight[j], partial_sum);
    }
    for (int step = 16; step > 0; step /= 2) partial_sum += __shfl_xor_sync(~0u, partial_sum, step);
    sum = fmaf(sum, correction, partial_sum);
    largest = top;
    o.x *= correction, o.y *= correction, o.z *= correction, o.w *= correction;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i * kGroups >= here) break;
      const float its_weight = __shfl_sync(~0u, weight[i * kGroups / 32], i * kGroups % 32 + group);
      if (i * kGroups >= of_group) continue;
      o.x = fmaf(its_weight, reveal(its_o[i].x), o.x);
      o.y = fmaf(its_weight, reveal(its_o[i].y), o.y);
      o.z = fmaf(its_weight, reveal(its_o[i].z), o.z);
      o.w = fmaf(its_weight, reveal(its_o[i].w), o.w);
      store_four_relaxed(words_of(i), make_uint4(0, 0, 0, 0));
    }
  }
#pragma unroll
  for (int distance = kLanesOfGroup; distance < 32; distance *= 2) {  // over the groups
    o.x += __shfl_xor_sync(~0u, o.x, distance), o.y += __shfl_xor_sync(~0u, o.y, distance);
    o.z += __shfl_xor_sync(~0u, o.z, distance), o.w += __shfl_xor_sync(~0u, o.w, distance);
  }
  if (group == 0) store_four(y, to + first_element, dtype, {o.x / sum, o.y / sum, o.z / sum, o.w / sum});
}

}  // namespace heddle::sm90
