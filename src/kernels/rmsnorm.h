// y[t] = z[t] / sqrt(mean(z[t]^2) + eps) * weight, where z[t] = x[t] + residual[t] if there is a residual, which then
// receives z, else x[t].
// With several heads each head of a token is normalised by itself, all with the same weight.
// The mean is dot(z, z) / hidden (README.md), the order (z * (1 / sqrt(mean + eps))) * weight. Squares beyond float32
// (|z| above 1e19) give zeros, as they do elsewhere.
#pragma once

#include "base/stream.h"
#include "base/tensor.h"

namespace heddle {

struct RmsNormParams {
  Tensor x;              // [num_tokens, num_heads * hidden], float32
  const void* weight{};  // [hidden], float32
  Tensor residual;       // as x; data null: none
  Tensor y;              // as x, or bfloat16; may be x or residual's memory only if it is exactly x
  float eps = 0;         // >= 0
  int num_heads = 1;     // parts of a token that are normalised apart from each other; 1: the token whole
};

// Enqueues on `stream`, a CPU stream. Throws InvalidArgument unless shapes and dtypes fit and eps is finite and not
// negative.
void rmsnorm(const RmsNormParams& params, Stream& stream);

}  // namespace heddle
