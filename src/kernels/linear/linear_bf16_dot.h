// The AVX512-BF16 target of `linear`, which Debian's Highway does not have: bfloat16 products two at a time.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace heddle {

// Computes rows [begin, end) of the weight, all tokens, x and weight bfloat16.
using LinearRows = void (*)(const LinearParams& params, std::int64_t begin, std::int64_t end);

// Null where this machine or this build does not have it.
LinearRows linear_rows_bf16_dot();

// Whether the instruction is fast here: on Intel's Sapphire and Emerald Rapids it takes longer than the two multiply-adds
// it stands for (docs/notes/cpu.md).
bool bf16_dot_pays();

}  // namespace heddle
