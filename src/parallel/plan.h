// A plan carries out the parts of a forward pass that depend on how the model is spread out. Chosen when the model is
// built; the forward pass does not ask.
#pragma once

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "kernels/linear/linear.h"

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
  // `normalized` [num_tokens, hidden], float32 or bfloat16; on a GPU or float16.
  virtual void add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) = 0;

  // y = x W^T + bias. x [num_tokens, in_features], y [num_tokens, out_features], of dtypes that kernels/linear/linear.h
  // takes; the lane's workspace as large as it wants. `role`: where in the forward pass the product stands.
  virtual void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) = 0;

  // y = silu(gate) * up, of gate and up = x W^T + bias, stacked (kernels/linear/linear_swiglu.h). y [num_tokens,
  // intermediate]; gate_up [num_tokens, 2 * intermediate] is scratch.
  virtual void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) = 0;
};

}  // namespace heddle
