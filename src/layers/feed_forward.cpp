#include "layers/feed_forward.h"

#include <cstdint>

#include "base/trace.h"
#include "kernels/linear/linear.h"

namespace heddle {

Hidden feed_forward(int layer, const FeedForwardWeights& weights, const Hidden& hidden, const LayerStep& step) {
  const Span span(step.lane.stream, "feed_forward", layer);
  LayerScratch scratch(step);
  const Tensor x = scratch.take(hidden.residual.rows, hidden.residual.columns, step.dtypes.activations);
  step.strategy.normalize(hidden, weights.norm, x, step.lane);
  gated_linear(x, weights.gated, step.delta, step);
  return {.residual = hidden.residual, .delta = step.delta};
}

void gated_linear(Tensor x, const GatedWeights& weights, Tensor y, const LayerStep& step) {
  const std::int64_t intermediate = weights.down.in_features;
  LayerScratch scratch(step);
  const Tensor gate_up = scratch.take(x.rows, 2 * intermediate, step.dtypes.intermediates);
  const Tensor gated = scratch.take(x.rows, intermediate, step.dtypes.activations);
  step.strategy.linear_swiglu(x, weights.gate_up, gate_up, gated, step.lane);
  step.strategy.linear(gated, weights.down, LinearRole::down, y, step.lane);
}

}  // namespace heddle
