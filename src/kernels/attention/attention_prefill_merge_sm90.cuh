// Split-KV of the prefill kernel: which sequences of a step have their keys split, where partial results lie, and the
// kernel that merges them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_decode_output_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

inline constexpr int kPrefillRows = 128;  // of a work tile

// Two tiles of keys: less would not pay for the merge.
inline constexpr int kFewestKeysOfSplit = 256;
// A lane of the merge has each.
inline constexpr int kMostPrefillSplits = 32;
inline constexpr int kMostPrefillPartials = 132;
inline constexpr std::size_t kPrefillCounterBytes = 16;

struct PrefillParams {
  AttentionParams attention;
  float score_scale;    // attention.scale * log2(e): weights are powers of two
  int group;            // query heads per KV head
  int min_rows;         // sequences of at most so many rows are skipped
  int first_row;        // of the step: with its token q, y and sums begin
  bool stores_rows;     // y has the cache's dtype, and eight elements of it are aligned
  int most_splits = 1;  // of a work tile's keys
  std::int32_t* next;   // counts the work tiles beyond the first two of each block; 0 between calls without a timeout
  float* partials;      // [kMostPrefillPartials, prefill_partial_floats()]
  KernelWaits waits;
};

constexpr std::size_t prefill_partial_floats(int head_dim) {
  return static_cast<std::size_t>(kPrefillRows) * (static_cast<std::size_t>(head_dim) + 2);
}

// A partial result: o of its rows, not divided, then their bases, then their sums; weights are relative to 2^base.
template <int kHeadDim>
class PrefillPartial {
 public:
  __device__ PrefillPartial(const PrefillParams& params, int index)
      : first_(params.partials + static_cast<std::size_t>(index) * prefill_partial_floats(kHeadDim)) {}

  __device__ float* o(int row) const { return first_ + row * kHeadDim; }
  __device__ float* base(int row) const { return first_ + kPrefillRows * kHeadDim + row; }
  __device__ float* sum(int row) const { return first_ + kPrefillRows * (kHeadDim + 1) + row; }

 private:
  float* first_;
};

// Keys that a row of the longest context sees.
inline std::int64_t longest_visible(const AttentionParams& params) {
  const int longest = params.sequences.max_context_len;
  return params.window > 0 ? std::min(longest, params.window) : longest;
}

// So many that SMs without work get some, of `works` work tiles.
inline int most_prefill_splits(std::int64_t works, int num_sms, std::int64_t longest_visible) {
  const std::int64_t room = std::min<std::int64_t>(num_sms, kMostPrefillPartials) / works;
  return static_cast<int>(std::clamp<std::int64_t>(std::min(room, longest_visible / kFewestKeysOfSplit), 1,
                                                   std::int64_t{kMostPrefillSplits}));
}

// The place in the cache of the last key that the token at `position` sees; -1: none.
__device__ inline int last_place(const PrefillParams& params, int position) {
  return params.attention.kv.count(position + 1) - 1;
}

// Where the sums of a token of q and a query head lie.
__device__ inline SumsOfHead sums_of(const AttentionParams& attention, int token, int head) {
  const PagedKv& kv = attention.kv;
  const int group = attention.num_heads / kv.num_kv_heads;
  float* const unit = attention.sums.unit(std::int64_t{token} * kv.num_kv_heads + head / group);
  return SumsOfHead::in(unit, group, head % group, kv.head_dim);
}

// Weights are relative to 2^base.
__device__ inline void store_weights(const SumsOfHead& to, float base, float sum) {
  *to.m = base * static_cast<float>(M_LN2);
  *to.l = sum;
}

// What the prefill kernel has to do of a sequence.
struct PrefillSequence {
  int rows = 0, tiles = 0;  // tiles: none where it skips the sequence
  int splits = 1;
  int first_token = 0, first_position = 0;  // among the rows of q; in the sequence

  __device__ int works(int num_kv_heads) const { return tiles * num_kv_heads * splits; }
};

__device__ inline PrefillSequence prefill_sequence(const PrefillParams& params, int sequence) {
  const PagedSequences& sequences = params.attention.sequences;
  PrefillSequence found;
  if (sequence >= sequences.num_sequences) return found;
  const int first = params.first_row, end = sequences.query_start[sequence + 1];
  const int begin = max(sequences.query_start[sequence], first);
  found.first_token = begin - first;
  found.first_position = sequences.context_len[sequence] - (end - begin);
  found.rows = (min(end, first + static_cast<int>(params.attention.q.rows)) - begin) * params.group;
  if (found.rows <= params.min_rows) return found;
  found.tiles = ceil_div(found.rows, kPrefillRows);
  const int visible = last_place(params, found.first_position) + 1;  // to the first row, and no row sees fewer
  const int fewest = params.attention.window > 0 ? min(visible, params.attention.window) : visible;
  found.splits = max(1, min(params.most_splits, fewest / kFewestKeysOfSplit));
  return found;
}

// A warp for each row of y.
inline constexpr int kMergeThreads = 256;

template <int kHeadDim>
__device__ void merge_prefill_row(const PrefillParams& params, int token, int head) {
  const PagedSequences& sequences = params.attention.sequences;
  const int lane = static_cast<int>(threadIdx.x) % 32, heads = params.attention.kv.num_kv_heads;
  PrefillSequence mine;
  int first_partial = 0;  // of the sequence
  for (int s = 0; mine.tiles == 0; s += 32) {
    if (s >= sequences.num_sequences) return;  // a row of no sequence, or of one that is not for this kernel
    const PrefillSequence its = prefill_sequence(params, s + lane);
    const bool has_token =
        its.tiles > 0 && its.first_token <= token && (token - its.first_token) * params.group < its.rows;
    const unsigned holders = __ballot_sync(~0u, has_token);
    const int holder = holders == 0 ? 32 : __ffs(static_cast<int>(holders)) - 1;
    int before = lane < holder ? its.works(heads) : 0;
    for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(~0u, before, step);
    first_partial += before;
    if (holders == 0) continue;
    mine = {.rows = __shfl_sync(~0u, its.rows, holder),
            .tiles = __shfl_sync(~0u, its.tiles, holder),
            .splits = __shfl_sync(~0u, its.splits, holder),
            .first_token = __shfl_sync(~0u, its.first_token, holder)};
  }
  if (mine.splits == 1) return;

  const int row = (token - mine.first_token) * params.group + head % params.group, tile = row / kPrefillRows;
  const int first = first_partial + ((mine.tiles - 1 - tile) * heads + head / params.group) * mine.splits;
  const PrefillPartial<kHeadDim> of_lane(params, first + min(lane, mine.splits - 1));
  const float base = lane < mine.splits ? *of_lane.base(row % kPrefillRows) : -INFINITY;
  float top = base;
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  // A split of which the row sees no key has a base of -infinity, and o and sum 0.
  const float weight = exp2_approx(base - (top == -INFINITY ? 0 : top));
  float sum = lane < mine.splits ? weight * *of_lane.sum(row % kPrefillRows) : 0;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);

  constexpr int kPairs = ceil_div(kHeadDim, 64);  // of a lane
  float2 o[kPairs] = {};
#pragma unroll 8
  for (int split = 0; split < mine.splits; ++split) {
    const float its_weight = __shfl_sync(~0u, weight, split);
    const float* const from = PrefillPartial<kHeadDim>(params, first + split).o(row % kPrefillRows);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int d = 2 * lane + 64 * i;
      if (d >= kHeadDim) continue;
      const float2 its = *reinterpret_cast<const float2*>(from + d);
      o[i].x = fmaf(its_weight, its.x, o[i].x);
      o[i].y = fmaf(its_weight, its.y, o[i].y);
    }
  }
  if (params.attention.sums.first != nullptr) {
    const SumsOfHead to = sums_of(params.attention, token, head);
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      if (const int d = 2 * lane + 64 * i; d < kHeadDim) *reinterpret_cast<float2*>(to.o + d) = o[i];
    if (lane == 0) store_weights(to, top, sum);
    return;
  }
  const Tensor& y = params.attention.y;
  const std::int64_t at = token * y.row_stride + std::int64_t{head} * kHeadDim;
  with_element(y.dtype, [&]<class Y>() {
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      if (const int d = 2 * lane + 64 * i; d < kHeadDim)
        store_pair(static_cast<Y*>(y.data) + at + d, o[i].x / sum, o[i].y / sum);
  });
}

template <int kHeadDim>
__global__ void __launch_bounds__(kMergeThreads) attention_prefill_merge(const __grid_constant__ PrefillParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  constexpr int kWarps = kMergeThreads / 32;
  const int rows = static_cast<int>(params.attention.q.rows) * params.attention.num_heads;
  for (int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32; row < rows;
       row += static_cast<int>(gridDim.x) * kWarps)
    merge_prefill_row<kHeadDim>(params, row / params.attention.num_heads, row % params.attention.num_heads);
}

template <int kHeadDim>
void merge_prefill_partials(const PrefillParams& params, const Lane& lane) {
  const std::int64_t rows = params.attention.q.rows * params.attention.num_heads;
  launch_sm90("attention", attention_prefill_merge<kHeadDim>,
              {.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(rows, kMergeThreads / 32))),
               .block = dim3(kMergeThreads),
               .fit = GridFit::trimmed},
              lane, params);
}

}  // namespace heddle::sm90
