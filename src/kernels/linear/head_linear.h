// A GEMM for each head: y[t][h] = W[h] x[t][h], with W [num_heads * out_features, in_features], head after head. On the
// CPU an element's bits are those of linear() (linear.h). Latent attention takes its queries to the latents and its
// values back with it (DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1.2: absorbed W_UK and W_UV).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

struct HeadLinearParams {
  Tensor
      x;  // [num_tokens, (num_heads - 1) * x_stride + in_features]: head h begins at column h * x_stride; as linear()
          // takes it
  std::int64_t x_stride = 0;
  Weight weight;  // of one run
  int num_heads = 0;
  Tensor y;  // likewise with y_stride and out_features; as linear() writes it; does not overlap x
  std::int64_t y_stride = 0;

  constexpr std::int64_t out_features() const { return weight.out_features / num_heads; }  // of a head
};

// Enqueues on the lane's stream; columns of y between heads stay as they are. Throws InvalidArgument unless shapes and
// dtypes fit.
void head_linear(const HeadLinearParams& params, const Lane& lane);

}  // namespace heddle
