// The AVX512-BF16 target of `attention`, which Debian's Highway does not have: bfloat16 products two at a time.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_part.h"

namespace heddle {

// Computes one part. Its products are of bfloat16 (rounds_products(params)).
using AttendPart = void (*)(const AttentionParams& params, const AttentionPart& part);

// Null where this machine or this build does not have it, or where it is slow (linear_bf16_dot.h).
AttendPart attend_part_bf16_dot();

}  // namespace heddle
