// y[t] = z[t] / sqrt(mean(z[t]^2) + eps) * weight, where z[t] = x[t] + residual[t] if there is a residual, which then
// receives z, else x[t].
// With several heads each head of a token is normalised by itself, all with the same weight.
// The mean is dot(z, z) / hidden (README.md), the order (z * (1 / sqrt(mean + eps))) * weight. Squares beyond float32
// (|z| above 1e19) give zeros, as they do elsewhere.
#pragma once

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct RmsNormParams {
  Tensor x;              // [num_tokens, num_heads * hidden], float32; on a GPU bfloat16 or float16, too
  const void* weight{};  // [hidden], float32
  Tensor residual;       // shape as x; float32, on a GPU any; data null: none
  Tensor y;           // shape as x; float32 or bfloat16, on a GPU any; may be x's memory if its place and dtype are x's
  float eps = 0;      // >= 0
  int num_heads = 1;  // parts of a token that are normalised apart from each other; 1: the token whole
};

// Enqueues on the lane's stream. On a GPU bfloat16 and float16 do not mix in one call, and a residual of 16 bits
// receives z rounded, while the norm is that of z itself; the sum of squares is in an order of its own
// (rmsnorm_sm90.cu), the same for a token alone and in a batch. Throws InvalidArgument unless shapes and dtypes fit and
// eps is finite and not negative.
void rmsnorm(const RmsNormParams& params, const Lane& lane);

}  // namespace heddle
