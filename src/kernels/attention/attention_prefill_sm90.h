// Attention for many new tokens of a sequence (attention_prefill_sm90.cu).
#pragma once

#include "kernels/attention/attention.h"

namespace heddle {

// The prefill kernel's part of AttentionParams::scratch, after the decode kernel's: a counter and partial results.
std::size_t attention_prefill_scratch_bytes(int head_dim);

// Whether the kernel takes these shapes, dtypes, strides and alignments.
bool attention_prefill_takes(const AttentionParams& params);

// Computes the sequences with more than `min_rows` pairs of new token and query head of a KV head; skips others.
void attention_prefill_sm90(const AttentionParams& params, int min_rows, const Lane& lane);

}  // namespace heddle
