#include "layers/head.h"

#include "base/trace.h"

namespace heddle {

Hidden embed(const Weight& table, const LayerStep& step) {
  step.strategy.embed(table, step.tensors.tokens, step.residual, step.lane);
  return {.residual = step.residual};
}

Tensor head(const HeadWeights& weights, const Hidden& hidden, std::int64_t vocab_size, const LayerStep& step) {
  const Span span(step.lane.stream, "logits");
  const int num_rows = step.tensors.num_logit_rows;
  const WantedRows wanted{.rows = step.tensors.logit_rows,
                          .num_rows = num_rows,
                          .prefix_tokens = step.tensors.parts.front().shape.num_tokens};
  const Hidden last = step.strategy.wanted_rows(hidden, wanted, step.arena, step.lane);
  const Tensor x = step.arena.take(num_rows, hidden.residual.columns, step.dtypes.activations);
  step.strategy.normalize(last, weights.norm, x, step.lane);
  const Tensor result = step.arena.take(num_rows, vocab_size, DType::float32);
  step.strategy.logits(x, weights.logits, result, step.lane);
  return result;
}

}  // namespace heddle
