// Attention on a GPU: selects the kernels of a step, and has the simple one that takes everything.
#include "kernels/attention/attention_sm90.h"

#include <algorithm>
#include <cmath>

#include "device/launch_sm90.cuh"
#include "kernels/attention/attention_decode_output_sm90.cuh"
#include "kernels/attention/attention_decode_sm90.h"
#include "kernels/attention/attention_latent_sm90.h"
#include "kernels/attention/attention_prefill_sm90.h"
#include "kernels/attention/attention_sm90_rows.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kSimpleWarps = 8;

// A block computes one token and query head at a time. A warp takes every kSimpleWarps-th key, and its lanes share the
// head's elements; the warps' sums are merged in order. Token 0 is row `first_row` of the step.
template <int kMaxPerLane>
__device__ void attend_simply(const AttentionParams& params, int first_row, int token, int head) {
  const PagedKv& kv = params.kv;
  const PagedSequences& sequences = params.sequences;
  const AttentionSums& sums = params.sums;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = params.num_heads / kv.num_kv_heads, kv_head = head / group;

  const int row_of_step = first_row + token;
  int sequence = 0, after = sequences.num_sequences;  // the last sequence that begins at this row or before
  while (after - sequence > 1) {
    const int middle = (sequence + after) / 2;
    (sequences.query_start[middle] <= row_of_step ? sequence : after) = middle;
  }
  const int end_row = sequences.query_start[sequence + 1];
  if (row_of_step >= end_row) return;  // a row of no sequence, as in padded captured steps
  const int position = sequences.context_len[sequence] - (end_row - row_of_step);
  const int first = kv.count(params.window > 0 ? max(0, position - params.window + 1) : 0),
            end = kv.count(position + 1);  // by their places in this cache
  const std::int32_t* page_table = sequences.pages(sequence);

  const std::int64_t q_row = token * params.q.row_stride + std::int64_t{head} * kv.head_dim;
  float q[kMaxPerLane], o[kMaxPerLane];
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int d = i * 32 + lane;
    q[i] = d < kv.head_dim ? load_element(params.q.data, q_row + d, params.q.dtype) * params.scale : 0;
    o[i] = 0;
  }
  float largest = -INFINITY, sum = 0;
  for (int j = first + warp; j < end; j += kSimpleWarps) {
    const auto row = static_cast<std::int64_t>(kv.offset(page_table[j / kv.page_size], kv_head, j % kv.page_size));
    float score = 0;
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int d = i * 32 + lane;
      if (d < kv.head_dim) score = fmaf(q[i], load_element(kv.keys, row + d, kv.dtype), score);
    }
    for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
    const float before = largest;
    largest = score > largest || isnan(score) ? score : largest;
    const float correction = before == largest ? 1 : expf(before - largest), weight = expf(score - largest);
    sum = fmaf(sum, correction, weight);
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int d = i * 32 + lane;
      if (d < kv.head_dim) o[i] = fmaf(weight, load_element(kv.values, row + d, kv.dtype), o[i] * correction);
    }
  }

  __shared__ float largest_of[kSimpleWarps], sum_of[kSimpleWarps], merged[kSimpleWarps][32 * kMaxPerLane];
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) merged[warp][i * 32 + lane] = o[i];
  if (lane == 0) {
    largest_of[warp] = largest;
    sum_of[warp] = sum;
  }
  __syncthreads();
  float all = -INFINITY, total = 0, weights[kSimpleWarps];
  for (int w = 0; w < kSimpleWarps; ++w) all = largest_of[w] > all || isnan(largest_of[w]) ? largest_of[w] : all;
  for (int w = 0; w < kSimpleWarps; ++w) {
    weights[w] = sum_of[w] == 0 ? 0 : expf(largest_of[w] - all);  // a warp without keys
    total = fmaf(weights[w], sum_of[w], total);
  }
  const int columns = params.sum_columns();
  for (int d = static_cast<int>(threadIdx.x); d < columns; d += kSimpleWarps * 32) {
    float value = 0;
    for (int w = 0; w < kSimpleWarps; ++w) value = fmaf(weights[w], merged[w][d], value);
    if (sums.first == nullptr) {
      store_element(params.y.data, token * params.y.row_stride + std::int64_t{head} * kv.head_dim + d, params.y.dtype,
                    value / total);
      continue;
    }
    float* const unit = sums.unit(std::int64_t{token} * kv.num_kv_heads + kv_head);
    const sm90::SumsOfHead to = sm90::SumsOfHead::in(unit, group, head % group, columns);
    to.o[d] = value;
    if (d == 0) *to.m = all, *to.l = total;
  }
}

template <int kMaxPerLane>
__global__ void __launch_bounds__(kSimpleWarps * 32)
    attention_simple(const __grid_constant__ AttentionParams params, int first_row) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (int head = static_cast<int>(blockIdx.y); head < params.num_heads; head += static_cast<int>(gridDim.y))
    for (int token = static_cast<int>(blockIdx.x); token < params.q.rows; token += static_cast<int>(gridDim.x)) {
      attend_simply<kMaxPerLane>(params, first_row, token, head);
      __syncthreads();  // before the next row's sums
    }
}

void attention_simple_sm90(const AttentionParams& params, int first_row, const Lane& lane) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.q.rows), static_cast<unsigned>(params.num_heads)),
                          .block = dim3(kSimpleWarps * 32),
                          .fit = GridFit::trimmed};
  if (params.kv.head_dim <= 256)
    launch_sm90("attention", attention_simple<8>, shape, lane, params, first_row);
  else
    launch_sm90("attention", attention_simple<32>, shape, lane, params, first_row);
}

}  // namespace

std::size_t attention_scratch_bytes_sm90(int /*max_tokens*/, int /*max_sequences*/, int /*num_heads*/, int head_dim) {
  return attention_decode_scratch_bytes(head_dim) + attention_prefill_scratch_bytes(head_dim);
}

namespace {

// The kernels for a step's attention; none: the simple one. Sums of prompts are asked for by rows (attention_sums_of_rows_sm90).
struct Kernels {
  bool decode, prefill;
};

bool all_are_short(const PagedSequences& sequences, int group) {
  return sequences.max_query_len * group <= kMostDecodeRows;
}

// Whether any sequence may be for the decode kernel.
bool may_be_short(const PagedSequences& sequences, int group) {
  return all_are_short(sequences, group) || sequences.num_sequences > 1;
}

Kernels kernels_for(const AttentionParams& params) {
  const int group = params.num_heads / params.kv.num_kv_heads;
  const bool all_short = all_are_short(params.sequences, group);
  if (!attention_decode_takes(params)) return {};
  if (!all_short && (params.sums.first != nullptr || !attention_prefill_takes(params))) return {};
  return {.decode = may_be_short(params.sequences, group), .prefill = !all_short};
}

}  // namespace

std::size_t attention_plan_bytes_sm90(int max_sequences, int num_kv_heads) {
  return attention_decode_plan_bytes(max_sequences, num_kv_heads, kMostDecodeRows);
}

std::size_t latent_plan_bytes_sm90(std::int64_t max_tokens, int max_sequences, int num_heads) {
  return std::max(attention_latent_plan_bytes(max_tokens, max_sequences, num_heads),
                  attention_plan_bytes_sm90(max_sequences, 1));
}

void plan_attention_sm90(const AttentionPlanParams& params, const Lane& lane) {
  if (attention_latent_takes_pages(params.kv, params.value_dim, params.window))
    return plan_attention_latent_sm90(params, lane);
  if (may_be_short(params.sequences, params.num_heads / params.kv.num_kv_heads))
    plan_attention_decode_sm90(params, kMostDecodeRows, lane);
}

void attention_sm90(const AttentionParams& params, const Lane& lane) {
  if (params.sums.first == nullptr && attention_latent_takes(params)) return attention_latent_sm90(params, lane);
  const Kernels kernels = kernels_for(params);
  if (kernels.decode) attention_decode_sm90(params, kMostDecodeRows, lane);
  if (kernels.prefill) attention_prefill_sm90(params, {.min_rows = kMostDecodeRows}, lane);
  if (!kernels.decode && !kernels.prefill) attention_simple_sm90(params, 0, lane);
}

void attention_sums_of_rows_sm90(const AttentionParams& params, int first_row, const Lane& lane) {
  if (attention_prefill_takes(params)) return attention_prefill_sm90(params, {.first_row = first_row}, lane);
  attention_simple_sm90(params, first_row, lane);
}

}  // namespace heddle
