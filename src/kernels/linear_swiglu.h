// linear() of gate and up stacked (linear.h), and swiglu() of what it makes (swiglu.h). On a GPU, for up to
// kLinearSmallRows tokens of 16 bits, one kernel that rounds y alone; whatever is in `y` otherwise, where sums are
// rounded to gate_up.y in between. As with linear(), a token's bits do not depend on how many come with it up to there.
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
