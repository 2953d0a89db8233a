// A plan carries out the parts of a forward pass that depend on how the model is spread out. Chosen when the model is
// built; the forward pass does not ask.
#pragma once

#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/weight.h"

namespace heddle {

// A model's hidden state: the residual, and what the last block produced and nobody has added yet.
// Where the model is spread out, `delta` is this rank's partial sum.
struct Hidden {
  Tensor residual;  // [num_tokens, hidden]
  Tensor delta;     // likewise; data null: nothing is pending
};

struct Norm {
  const void* weight = nullptr;  // [hidden], float32 on the CPU
  float eps = 0;
};

class Plan {
 public:
  virtual ~Plan() = default;

  // residual += delta, summed over the team; normalized = RMSNorm(residual). Afterwards nothing is pending.
  // `normalized` [num_tokens, hidden], float32 or bfloat16.
  virtual void add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, Stream& stream) = 0;

  // y = x W^T + bias. x [num_tokens, in_features], float32, or bfloat16 if the weight is, y [num_tokens, out_features].
  virtual void linear(Tensor x, const Weight& weight, Tensor y, Stream& stream) = 0;
};

}  // namespace heddle
