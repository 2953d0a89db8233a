// linear() of gate and up stacked (linear.h), then swiglu() of its result (swiglu.h).
//
// On a GPU this is one kernel where W has a 16-bit dtype, x and y have W's dtype, in_features is a multiple of 8, and
// x, W and their rows are 16-byte aligned: for up to 64 tokens always; for more where y's columns are a multiple of 8,
// its rows are aligned, there is no bias, and y fills the kernel's tiles (linear_swiglu_sm90.cu). The kernel rounds y
// only. Otherwise two kernels run, and gate and up are rounded to gate_up.y's dtype in between. So
// above kLinearSmallRows tokens a token's bits depend on the number of tokens.
#pragma once

#include "base/device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/linear/linear.h"

namespace heddle {

struct LinearSwigluParams {
  LinearParams gate_up;  // its y, [num_tokens, 2 * intermediate], is scratch: written or not
  Tensor y;              // [num_tokens, intermediate], as swiglu() takes it; overlaps neither x nor gate_up.y
};

// Whether these operands take one kernel on `device` with a lane of more than 8 SMs.
bool is_fused(const LinearSwigluParams& params, Device device);

// Enqueues on the lane's stream. Throws as linear() and swiglu() do.
void linear_swiglu(const LinearSwigluParams& params, const Lane& lane);

}  // namespace heddle
