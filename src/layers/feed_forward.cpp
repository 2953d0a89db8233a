#include "layers/feed_forward.h"

#include <cstdint>

#include "base/trace.h"
#include "kernels/linear/linear.h"

namespace heddle {

void feed_forward(int layer, const FeedForwardWeights& weights, const LayerStep& step) {
  const Span span(step.lane.stream, "feed_forward", layer);
  gated_linear(step.normalized, weights.gated, step.delta, step);
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
