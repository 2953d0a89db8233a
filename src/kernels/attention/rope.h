// Rotary position embedding in place, on each head of q and k, in Hugging Face's "rotate half" layout: with angle =
// float(position) * inv_freq[i], c = cos(angle) * scale, s = sin(angle) * scale, h = head_dim / 2, for i < h
//   x[i], x[i + h] = x[i] * c - x[i + h] * s, x[i + h] * c + x[i] * s
// The angle is rounded to float32 as in transformers. Its cosine and sine are computed in float64 and rounded once, so
// they do not depend on the C library.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct RopeParams {
  Tensor q;                         // [num_tokens, num_heads * head_dim], float32; on a GPU bfloat16 or float16, too
  Tensor k;                         // [num_tokens, num_kv_heads * head_dim], as q; does not overlap q
  const std::int32_t* positions{};  // [num_tokens]
  const float* inv_freq{};          // [head_dim / 2]
  int head_dim = 0;                 // even
  float scale = 1;                  // on cosine and sine (attention scaling of some long-context variants)
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit.
void rope(const RopeParams& params, const Lane& lane);

}  // namespace heddle
