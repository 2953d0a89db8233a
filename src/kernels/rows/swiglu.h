// y[t][i] = silu(gate) * up with gate = gate_up[t][i], up = gate_up[t][intermediate + i], silu(x) = x / (1 + exp(-x)).
#pragma once

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct SwigluParams {
  Tensor gate_up;  // [num_tokens, 2 * intermediate], float32; on a GPU bfloat16 or float16, too
  Tensor y;        // [num_tokens, intermediate], float32 or bfloat16, on a GPU any; does not overlap gate_up
};

// The checks of swiglu(): throws InvalidArgument.
void require_swiglu(const SwigluParams& params, const Lane& lane);

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit.
void swiglu(const SwigluParams& params, const Lane& lane);

}  // namespace heddle
