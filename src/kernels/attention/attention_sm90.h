// The CUDA side of attention.h.
#pragma once

#include "kernels/attention/attention.h"

namespace heddle {

std::size_t attention_scratch_bytes_sm90(int max_tokens, int max_sequences, int num_heads, int head_dim);

std::size_t attention_plan_bytes_sm90(int max_sequences, int num_kv_heads);
std::size_t latent_plan_bytes_sm90(std::int64_t max_tokens, int max_sequences, int num_heads);

// plan_attention() and attention() have checked `params`.
void plan_attention_sm90(const AttentionPlanParams& params, const Lane& lane);
void attention_sm90(const AttentionParams& params, const Lane& lane);

// params.sums of rows [first_row, first_row + q.rows) of a step: q, y and sums are theirs, `sequences` the whole step's.
// Takes what attention() takes, and caches that are one of several ranks' with any number of new tokens.
void attention_sums_of_rows_sm90(const AttentionParams& params, int first_row, const Lane& lane);

}  // namespace heddle
