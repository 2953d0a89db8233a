// The CUDA side of attention.h.
#pragma once

#include "kernels/attention.h"

namespace heddle {

std::size_t attention_scratch_bytes_sm90(int max_tokens, int max_sequences, int num_heads, int head_dim);

// `params` are as attention() has checked them.
void attention_sm90(const AttentionParams& params, Stream& stream);

}  // namespace heddle
