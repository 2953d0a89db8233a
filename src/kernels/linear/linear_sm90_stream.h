// The small-M GEMM: linear_sm90_stream.cuh.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"

namespace heddle {

// Whether linear_stream() takes these operands: tokens, dtypes, alignment. require_linear() has accepted them.
bool is_for_stream(const LinearParams& params);

// The same for linear_swiglu_stream().
bool is_for_swiglu_stream(const LinearSwigluParams& params);

// Enqueue on the lane's CUDA stream.
void linear_stream(const LinearParams& params, const Lane& lane);
void linear_swiglu_stream(const LinearSwigluParams& params, const Lane& lane);

}  // namespace heddle
