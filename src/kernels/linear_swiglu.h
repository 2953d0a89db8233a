// linear() of gate and up stacked (linear.h), then swiglu() of what it makes (swiglu.h). On a GPU one kernel where
// linear() is fast for up to kLinearSmallRows tokens, the weights are of 16 bits and y has their dtype: then y alone is
// rounded. Otherwise one after the other, and gate and up are rounded to gate_up.y's dtype in between. Up to
// kLinearSmallRows a token's bits do not depend on how many come with it.
#pragma once

#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/linear.h"

namespace heddle {

struct LinearSwigluParams {
  LinearParams gate_up;  // its y, [num_tokens, 2 * intermediate], is scratch: written or not
  Tensor y;              // [num_tokens, intermediate], as swiglu() takes it; apart from x and gate_up.y
};

// Enqueues on `stream`. Throws as linear() and swiglu() do.
void linear_swiglu(const LinearSwigluParams& params, Stream& stream);

}  // namespace heddle
