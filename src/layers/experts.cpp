#include "layers/experts.h"

#include <algorithm>
#include <cmath>

#include "base/trace.h"
#include "kernels/linear/linear.h"
#include "kernels/moe/combine_experts.h"
#include "kernels/moe/group_rows.h"
#include "kernels/moe/grouped_swiglu.h"
#include "kernels/moe/mixture.h"

namespace heddle {
namespace {

// Who computes what, in the order of experts (group_rows.h), and with which weights.
struct Routing {
  std::int32_t* first_row;  // [num_experts + 1]
  std::int32_t* token_of;   // [num_tokens * top_k]
  std::int32_t* row_of;     // [num_tokens, top_k]
  float* weights;           // [num_tokens, top_k]
};

template <class T>
T* take_array(Arena& arena, std::int64_t count) {
  return static_cast<T*>(arena.take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
}

Tensor router_logits(Tensor x, const ExpertsWeights& weights, const LayerStep& step) {
  const Tensor logits = step.arena.take(x.rows, weights.router.out_features, DType::float32);
  step.strategy.linear(x, weights.router, LinearRole::alone, logits, step.lane);
  return logits;
}

Routing route_tokens(Tensor logits, const float* bias, const RouteRule& rule, const LayerStep& step) {
  const std::int64_t num_experts = logits.columns, num_pairs = logits.rows * rule.top_k;
  const Routing routing{.first_row = take_array<std::int32_t>(step.arena, num_experts + 1),
                        .token_of = take_array<std::int32_t>(step.arena, num_pairs),
                        .row_of = take_array<std::int32_t>(step.arena, num_pairs),
                        .weights = take_array<float>(step.arena, num_pairs)};
  auto* const experts = take_array<std::int32_t>(step.arena, num_pairs);
  route({.logits = logits, .bias = bias, .rule = rule, .experts = experts, .weights = routing.weights}, step.lane);
  group_rows({.experts = experts,
              .num_tokens = logits.rows,
              .top_k = rule.top_k,
              .num_experts = static_cast<int>(num_experts),
              .first_row = routing.first_row,
              .token_of = routing.token_of,
              .row_of = routing.row_of},
             step.lane);
  return routing;
}

WeightGroup group_of(const std::vector<Weight>& weights, const void* const* table) {
  return {.weights = weights.data(), .table = table, .count = static_cast<int>(weights.size())};
}

void multiply(Tensor x, const WeightGroup& group, const Routing& routing, Tensor y, const Lane& lane) {
  const Span span(lane.stream, "linear");
  grouped_linear({.x = x, .group = group, .first_row = routing.first_row, .y = y}, lane);
}

// The routed experts' outputs, expert after expert.
Tensor routed_outputs(Tensor x, const ExpertsWeights& weights, const Routing& routing, int top_k,
                      const LayerStep& step) {
  const std::int64_t rows = x.rows * top_k, intermediate = weights.down.front().in_features;
  const Tensor gated = step.arena.take(rows, intermediate, step.dtypes.activations);
  {
    const LayerScratch scratch(step);
    const Span span(step.lane.stream, "linear");
    grouped_swiglu({.x = x,
                    .token_of = routing.token_of,
                    .gate_up = {.x = step.arena.take(rows, x.columns, x.dtype),
                                .group = group_of(weights.gate_up, weights.gate_up_table),
                                .first_row = routing.first_row,
                                .y = step.arena.take(rows, 2 * intermediate, step.dtypes.intermediates)},
                    .y = gated},
                   step.lane);
  }
  const Tensor outputs = step.arena.take(rows, x.columns, step.dtypes.intermediates);
  multiply(gated, group_of(weights.down, weights.down_table), routing, outputs, step.lane);
  return outputs;
}

// Whatever the number of tokens, device and dtypes are.
void grouped_experts(Tensor x, Tensor logits, const ExpertsWeights& weights, const RouteRule& rule,
                     const LayerStep& step) {
  const Routing routing = route_tokens(logits, weights.bias, rule, step);
  if (weights.has_shared()) gated_linear(x, weights.shared, step.delta, step);
  const Tensor outputs = routed_outputs(x, weights, routing, rule.top_k, step);
  combine_experts({.x = outputs,
                   .weights = routing.weights,
                   .row_of = routing.row_of,
                   .top_k = rule.top_k,
                   .shared = weights.has_shared() ? step.delta : Tensor{},
                   .y = step.delta},
                  step.lane);
}

MixtureParams mixture_of(Tensor x, Tensor logits, const ExpertsWeights& weights, const RouteRule& rule,
                         const LayerStep& step) {
  const std::int64_t pairs = x.rows * rule.top_k;
  MixtureParams params{.x = x,
                       .logits = logits,
                       .bias = weights.bias,
                       .rule = rule,
                       .gate_up = group_of(weights.gate_up, weights.gate_up_table),
                       .down = group_of(weights.down, weights.down_table),
                       .experts = take_array<std::int32_t>(step.arena, pairs),
                       .gated = step.arena.take(pairs, weights.down.front().in_features, step.dtypes.activations),
                       .y = step.delta};
  if (weights.has_shared()) {
    params.shared_gate_up = weights.shared.gate_up;
    params.shared_down = weights.shared.down;
    params.shared_gated = step.arena.take(x.rows, weights.shared.down.in_features, step.dtypes.activations);
  }
  return params;
}

}  // namespace

void experts(int layer, const ExpertsWeights& weights, const RouteRule& rule, const LayerStep& step) {
  const Span span(step.lane.stream, "experts", layer);
  LayerScratch scratch(step);
  const Tensor x = step.normalized, logits = router_logits(x, weights, step);
  if (x.rows <= kMixtureTokens) {
    const LayerScratch of_mixture(step);
    const MixtureParams params = mixture_of(x, logits, weights, rule, step);
    if (mixture_takes(params, step.lane.stream.device())) {
      const Span multiplying(step.lane.stream, "linear");
      return mixture(params, step.lane);
    }
  }
  grouped_experts(x, logits, weights, rule, step);
}

std::size_t bytes_of_token(const ExpertsWeights& weights, int top_k) {
  const std::size_t shared =
      weights.has_shared() ? weights.shared.gate_up.size_bytes() + weights.shared.down.size_bytes() : 0;
  return weights.router.size_bytes() + static_cast<std::size_t>(top_k) * bytes_of_expert(weights) + shared;
}

std::size_t bytes_of_expert(const ExpertsWeights& weights) {
  return weights.gate_up.front().size_bytes() + weights.down.front().size_bytes();
}

double expected_experts(int num_experts, int top_k, std::int64_t num_tokens) {
  if (num_experts == 0) return 0;
  const double not_chosen = 1 - static_cast<double>(top_k) / num_experts;
  return num_experts * (1 - std::pow(not_chosen, static_cast<double>(num_tokens)));
}

std::size_t ExpertReads::bytes_beyond_one_token(std::int64_t num_tokens) const {
  const double more = expected_experts(num_experts, top_k, num_tokens) - top_k;
  return static_cast<std::size_t>(std::max(0.0, more) * static_cast<double>(bytes));
}

}  // namespace heddle
