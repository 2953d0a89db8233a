// The AVX512-BF16 target of `linear`, which Debian's Highway lacks: two bfloat16 products per instruction.
#pragma once

#include <cstdint>

#include "kernels/linear/linear.h"

namespace heddle {

// Computes rows [begin, end) of the weight for all tokens; x and weight are bfloat16.
using LinearRows = void (*)(const LinearParams& params, std::int64_t begin, std::int64_t end);

// Null if this machine or this build lacks it.
LinearRows linear_rows_bf16_dot();

// Whether the instruction is fast here. On Intel's Sapphire and Emerald Rapids it is slower than the two multiply-adds
// that it replaces (docs/notes/cpu.md).
bool bf16_dot_pays();

}  // namespace heddle
