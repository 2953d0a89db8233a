// Absorbed latent attention on a GPU (attention_latent_sm90.cu): one cached row of 512 + 64 elements for all heads.
#pragma once

#include "kernels/attention/attention.h"

namespace heddle {

// Whether the kernel takes these shapes, dtypes, strides and alignments.
bool attention_latent_takes(const AttentionParams& params);

// Whether it takes these pages, whose plan is then its own.
bool attention_latent_takes_pages(const PagedKv& kv, int value_dim, int window);

// Writes the splits of each block to params.plan, which has attention_latent_plan_bytes().
void plan_attention_latent_sm90(const AttentionPlanParams& params, const Lane& lane);
std::size_t attention_latent_plan_bytes(std::int64_t max_tokens, int max_sequences, int num_heads);

// Computes all sequences, of any number of new tokens. Partial results take less scratch than those of the decode kernel
// for heads of as many elements (attention_decode_scratch_bytes()).
void attention_latent_sm90(const AttentionParams& params, const Lane& lane);

}  // namespace heddle
