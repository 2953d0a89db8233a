// Gate, up and SwiGLU of many tokens as one kernel: linear_swiglu_sm90.cu.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear_swiglu.h"

namespace heddle {

// Whether linear_swiglu_tiles() takes these operands, which fit each other (preconditions.h), and is faster on an H200
// than a product and SwiGLU: number of tokens, dtypes, alignment, no bias, and tiles that come out even. The same on
// every GPU and on every lane.
bool is_for_swiglu_tiles(const LinearSwigluParams& params);

// Enqueues on the lane's stream, a CUDA stream. Throws Failure when the GPU refuses.
void linear_swiglu_tiles(const LinearSwigluParams& params, const Lane& lane);

}  // namespace heddle
