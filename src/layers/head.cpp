#include "layers/head.h"

#include "base/trace.h"
#include "kernels/rows/gather_rows.h"

namespace heddle {

Hidden embed(const Weight& table, const LayerStep& step) {
  step.strategy.embed(table, step.tensors.tokens, step.residual, step.lane);
  return {.residual = step.residual};
}

Tensor head(const HeadWeights& weights, const Hidden& hidden, std::int64_t vocab_size, const LayerStep& step) {
  const Span span(step.lane.stream, "logits");
  const int num_rows = step.tensors.num_logit_rows;
  const auto wanted_rows = [&](Tensor x) {
    if (num_rows == x.rows) return x;  // rows ascend, so they are all (step_plan.h, validate)
    const Tensor rows = step.arena.take(num_rows, x.columns, x.dtype);
    gather_rows({.x = x, .rows = step.tensors.logit_rows, .y = rows}, step.lane);
    return rows;
  };
  const Hidden last{.residual = wanted_rows(hidden.residual), .delta = wanted_rows(hidden.delta)};
  const Tensor x = step.arena.take(num_rows, hidden.residual.columns, step.dtypes.activations);
  step.strategy.normalize(last, weights.norm, x, step.lane);
  const Tensor result = step.arena.take(num_rows, vocab_size, DType::float32);
  step.strategy.logits(x, weights.logits, result, step.lane);
  return result;
}

}  // namespace heddle
