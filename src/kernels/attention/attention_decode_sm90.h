// Attention for few new tokens of a sequence and many keys (attention_decode_kernel_sm90.cuh).
#pragma once

#include "kernels/attention/attention.h"

namespace heddle {

// The most pairs of new token and query head per KV head for which a sequence goes to the decode kernel.
inline constexpr int kMostDecodeRows = 64;

// Whether the kernel takes these shapes, dtypes, strides and alignments.
bool attention_decode_takes(const AttentionParams& params);

// Writes the splits of each block of attention_decode_sm90() to params.plan, which has attention_decode_plan_bytes().
// Does nothing for shapes that the kernel does not take.
void plan_attention_decode_sm90(const AttentionPlanParams& params, int max_rows, const Lane& lane);
std::size_t attention_decode_plan_bytes(int max_sequences, int num_kv_heads, int max_rows);

// y, or params.sums, of the sequences with at most `max_rows` pairs of new token and query head of a KV head; skips others.
void attention_decode_sm90(const AttentionParams& params, int max_rows, const Lane& lane);

// The decode kernel's part of AttentionParams::scratch.
std::size_t attention_decode_scratch_bytes(int head_dim);

}  // namespace heddle
