// The feed-forward of a transformer as a block of a model: norm, then y = W_down (silu(W_gate x) * (W_up x)) (Shazeer,
// 2020, "GLU Variants Improve Transformer").
#pragma once

#include "base/tensor.h"
#include "base/weight.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"

namespace heddle {

// Of one layer, or of one expert of it; features are those of this rank.
struct GatedWeights {
  Weight gate_up;  // gate and up stacked: [2 * intermediate, hidden]
  Weight down;     // [hidden, intermediate]
};

struct FeedForwardWeights {
  Norm norm;
  GatedWeights gated;
};

// From step.normalized: leaves what it adds to the residual in step.delta.
void feed_forward(int layer, const FeedForwardWeights& weights, const LayerStep& step);

// What lies between the norm and the residual. x [num_tokens, hidden], step.dtypes.activations; y [num_tokens, hidden], of
// any dtype that linear() takes: this rank's partial sum.
void gated_linear(Tensor x, const GatedWeights& weights, Tensor y, const LayerStep& step);

}  // namespace heddle
