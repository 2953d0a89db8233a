// The AVX512-BF16 target of `attention`, which Debian's Highway lacks: two bfloat16 products per instruction.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_part.h"

namespace heddle {

// Computes one part, with multiplications in bfloat16 (rounds_products(params)).
using AttendPart = void (*)(const AttentionParams& params, const AttentionPart& part);

// Null if this machine or this build lacks it, or if it is slow (linear_bf16_dot.h).
AttendPart attend_part_bf16_dot();

}  // namespace heddle
