// linear() of gate and up stacked (linear.h), then swiglu() of what it makes (swiglu.h). On a GPU one kernel where W is
// of 16 bits, x and y have its dtype, in_features is a multiple of 8 and x and W are aligned to 16 bytes, rows too: for
// up to kLinearSmallRows tokens, and, where y's columns are a multiple of 8, too, its rows aligned, and there is no
// bias, for as many more as come out even in tiles (linear_swiglu_sm90.cu). Then y alone is rounded. Otherwise one
// after the other, and gate and up are rounded to gate_up.y's dtype in between. Up to kLinearSmallRows a token's bits
// do not depend on how many come with it; beyond, on how many there are.
#pragma once

#include "base/device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/linear/linear.h"

namespace heddle {

struct LinearSwigluParams {
  LinearParams gate_up;  // its y, [num_tokens, 2 * intermediate], is scratch: written or not
  Tensor y;              // [num_tokens, intermediate], as swiglu() takes it; apart from x and gate_up.y
};

// Whether these operands, which fit each other, take one kernel on `device`, given more than 8 of its SMs.
bool gates_at_once(const LinearSwigluParams& params, Device device);

// Enqueues on the lane's stream. Throws as linear() and swiglu() do.
void linear_swiglu(const LinearSwigluParams& params, const Lane& lane);

}  // namespace heddle
