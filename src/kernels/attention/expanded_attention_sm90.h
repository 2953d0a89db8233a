// expanded_attention on a GPU. expanded_attention.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/expanded_attention.h"

namespace heddle {

// Heads that the kernel is made for: DeepSeek-V2's and -V3's.
inline constexpr ExpandedHead kExpandedHeadSm90{.nope_dim = 128, .rope_dim = 64, .value_dim = 128};

// Precondition: the head is kExpandedHeadSm90, all operands have one dtype of 16 bits and rows aligned to 16 bytes, and
// scale > 0.
void expanded_attention_sm90(const ExpandedAttentionParams& params, const Lane& lane);

}  // namespace heddle
