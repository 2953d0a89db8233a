// y[t] = z[t] / sqrt(mean(z[t]^2) + eps) * weight, where z[t] = x[t] + residual[t] if there is a residual, which then
// receives z, else z[t] = x[t]. With several heads, each head of a token is normalized by itself, with the same weight.
// The mean is dot(z, z) / hidden (README.md), the order (z * (1 / sqrt(mean + eps))) * weight. Squares that overflow
// float32 (|z| above 1e19) give zeros, as in other engines.
#pragma once

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct RmsNormParams {
  Tensor x;              // [num_tokens, num_heads * hidden], float32; on a GPU bfloat16 or float16, too
  const void* weight{};  // [hidden], float32
  Tensor residual;       // shape as x; float32, on a GPU any; data null: none
  Tensor y;       // shape as x; float32 or bfloat16, on a GPU any; may alias x if address, strides and dtype are equal
  float eps = 0;  // >= 0
  int num_heads = 1;  // parts of a token that are normalized separately
};

// Enqueues on the lane's stream. A GPU call does not mix bfloat16 and float16. There a 16-bit residual receives z
// rounded, while the norm uses z itself, and the order of the sum of squares depends on hidden only (rmsnorm_sm90.cu).
// Throws InvalidArgument unless shapes and dtypes fit and eps is finite and not negative.
void rmsnorm(const RmsNormParams& params, const Lane& lane);

}  // namespace heddle
