// Attention for many new tokens of a sequence (attention_prefill_sm90.cu).
#pragma once

#include "kernels/attention/attention.h"

namespace heddle {

// The prefill kernel's part of AttentionParams::scratch, after the decode kernel's: a counter and partial results.
std::size_t attention_prefill_scratch_bytes(int head_dim);

// Whether the kernel takes these shapes, dtypes, strides and alignments.
bool attention_prefill_takes(const AttentionParams& params);

// The part of a step that a call computes.
struct PrefillStep {
  int first_row = 0;  // with its token q, y and sums begin; they end with q
  int min_rows = 0;   // sequences with at most so many pairs of new token and query head of a KV head are skipped
};

// y, or params.sums, over caches that may be one of several ranks'.
void attention_prefill_sm90(const AttentionParams& params, const PrefillStep& step, const Lane& lane);

}  // namespace heddle
