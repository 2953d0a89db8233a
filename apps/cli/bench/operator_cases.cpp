#include "cli/bench/operator_cases.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "base/checked.h"
#include "engine/step_memory.h"

namespace heddle {
namespace {

// What is timed of a call. An operator that is new must say here whether it is.
struct TimedCase {
  const OperatorStep& step;

  template <class Params>
  std::optional<OperatorCase> operator()(const Params& call) const {
    return case_of(call, step);
  }
  std::optional<OperatorCase> operator()(const AttentionPlanParams&) const { return std::nullopt; }

  // No model's forward pass has these by themselves.
  std::optional<OperatorCase> operator()(const RopeParams&) const { return std::nullopt; }
  std::optional<OperatorCase> operator()(const KvWriteParams&) const { return std::nullopt; }

  // The executor's.
  std::optional<OperatorCase> operator()(const CopyPagesParams&) const { return std::nullopt; }
  std::optional<OperatorCase> operator()(const TakeTokensParams&) const { return std::nullopt; }
  std::optional<OperatorCase> operator()(const ArgmaxParams&) const { return std::nullopt; }
  std::optional<OperatorCase> operator()(const SampleParams&) const { return std::nullopt; }
};

std::vector<OperatorCall> calls_of(const OperatorStep& step) {
  const int pages = ceil_div(step.context + step.tokens, step.page_size);
  const ExecutorLimits limits{.step = {.max_tokens = step.rows(),
                                       .max_sequences = step.batch,
                                       .max_samples = step.batch,
                                       .max_pages_per_sequence = pages},
                              .page_size = step.page_size,
                              .num_pages = pages * step.batch};
  const StepShape shape{.num_tokens = step.rows(),
                        .num_sequences = step.batch,
                        .num_logit_rows = step.batch,
                        .max_query_len = step.tokens,
                        .max_context_len = step.context + step.tokens};
  return run_dry(step.model, limits, shape).calls;
}

}  // namespace

nlohmann::json baseline_step(const OperatorStep& step) {
  const ModelDescription& sizes = step.sizes;
  return {{"mode", "operator"},
          {"device", name_of(step.model.device())},
          {"dtype", std::string(name_of(step.dtype()))},
          {"batch", step.batch},
          {"tokens", step.tokens},
          {"context", step.context},
          {"rows", step.rows()},
          {"hidden", sizes.hidden.value_or(0)},
          {"intermediate", sizes.intermediate.value_or(0)},
          {"heads", sizes.heads.value_or(0)},
          {"kv_heads", sizes.kv_heads.value_or(0)},
          {"head_dim", sizes.head_dim.value_or(0)},
          {"vocab", sizes.vocab_size.value_or(0)}};
}

std::vector<OperatorCase> operator_cases(const OperatorStep& step) {
  std::vector<OperatorCase> cases;
  for (const OperatorCall& call : calls_of(step)) {
    std::optional<OperatorCase> next = std::visit(TimedCase{step}, call);
    if (!next) continue;
    const auto same = std::ranges::find_if(cases, [&](const OperatorCase& one) {
      return one.name == next->name && one.shape == next->shape && one.bytes == next->bytes;
    });
    if (same == cases.end())
      cases.push_back(std::move(*next));
    else
      ++same->calls_per_step;
  }
  return cases;
}

const std::vector<std::string>& operator_names() {
  static const std::vector<std::string> names{
      "embedding",          "rmsnorm",         "linear",          "linear_swiglu",
      "rope_kv_write",      "attention",       "swiglu",          "gather_rows",
      "head_linear",        "latent_kv_write", "route",           "group_rows",
      "grouped_linear",     "grouped_swiglu",  "combine_experts", "gather_latents",
      "expanded_attention", "mixture"};
  return names;
}

}  // namespace heddle
