// Gate, up and SwiGLU of many tokens in one kernel: linear_swiglu_sm90.cu.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear_swiglu.h"

namespace heddle {

// Whether linear_swiglu_tiles() takes these operands and is faster on an H200 than a GEMM and SwiGLU: tokens, dtypes,
// alignment, no bias, and well-filled tiles. The same on every GPU and lane. require_linear() has accepted them.
bool is_for_swiglu_tiles(const LinearSwigluParams& params);

// Enqueues on the lane's CUDA stream. Throws Failure when the GPU reports an error.
void linear_swiglu_tiles(const LinearSwigluParams& params, const Lane& lane);

}  // namespace heddle
