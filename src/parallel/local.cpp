#include "parallel/local.h"

#include "base/trace.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {

void LocalStrategy::embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) {
  embedding({.table = table, .tokens = tokens, .y = y}, lane);
}

void LocalStrategy::normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) {
  const bool pending = hidden.delta.data != nullptr;
  rmsnorm({.x = pending ? hidden.delta : hidden.residual,
           .weight = norm.weight,
           .residual = pending ? hidden.residual : Tensor{},
           .y = normalized,
           .eps = norm.eps},
          lane);
}

Hidden LocalStrategy::wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) {
  if (wanted.num_rows == hidden.residual.rows) return hidden;  // rows ascend, so they are all (step_plan.h, validate)
  const auto gathered = [&](const Tensor& x) {
    const Tensor y = arena.take(wanted.num_rows, x.columns, x.dtype);
    gather_rows({.x = x, .rows = wanted.rows, .y = y}, lane);
    return y;
  };
  return {.residual = gathered(hidden.residual),
          .delta = hidden.delta.data == nullptr ? Tensor{} : gathered(hidden.delta)};
}

void LocalStrategy::run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) {
  for (int block = 0; block < blocks.count; ++block)
    for (std::size_t part = 0; part < parts.size(); ++part) {
      normalize(parts[part].before(block), blocks.norm(block), parts[part].normalized, execution.compute);
      blocks.compute(block, static_cast<int>(part));
    }
}

void LocalStrategy::linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) {
  const Span span(lane.stream, "linear");
  heddle::linear({.x = x, .weight = weight, .y = y, .role = role}, lane);
}

void LocalStrategy::linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) {
  const Span span(lane.stream, "linear");
  heddle::linear_swiglu({.gate_up = {.x = x, .weight = weight, .y = gate_up, .role = LinearRole::gate_up}, .y = y},
                        lane);
}

void LocalStrategy::logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) {
  linear(x, weight, LinearRole::logits, y, lane);
}

}  // namespace heddle
