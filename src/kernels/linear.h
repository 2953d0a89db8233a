// y = x W^T + bias: y[t][r] = dot(x[t], W[r]) + bias[r], the dot product of README.md, whatever the batch. Weights keep
// their dtype in memory and are widened as they are read.
#pragma once

#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/weight.h"

namespace heddle {

struct LinearParams {
  Tensor x;       // [num_tokens, in_features], float32; or bfloat16, if the weight is
  Weight weight;  // [out_features, in_features]
  Tensor y;       // [num_tokens, out_features], float32; apart from x
};

// Enqueues on `stream`, a CPU stream. Throws InvalidArgument unless shapes and dtypes fit.
void linear(const LinearParams& params, Stream& stream);

}  // namespace heddle
