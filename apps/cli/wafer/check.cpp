#include "cli/wafer/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "engine/executor.h"
#include "models/registry.h"

namespace heddle {
namespace {

constexpr int kCheckPageSize = 32;

StepPlan one_step(const std::vector<std::int32_t>& tokens, std::int64_t first, std::int64_t rows) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  StepPlan plan;
  plan.tokens = tokens;
  plan.positions.resize(tokens.size());
  std::iota(plan.positions.begin(), plan.positions.end(), 0);
  plan.pages.resize(static_cast<std::size_t>(ceil_div(count, kCheckPageSize)));
  std::iota(plan.pages.begin(), plan.pages.end(), 0);
  plan.sequences.push_back(
      {.num_tokens = count, .context_len = count, .num_pages = static_cast<std::int32_t>(plan.pages.size())});
  for (std::int64_t row = first; row < first + rows; ++row)
    plan.samples.push_back({.sequence = 0,
                            .row = static_cast<std::int32_t>(row),
                            .position = static_cast<std::int32_t>(row) + 1,
                            .params = {}});
  return plan;
}

}  // namespace

LogitsDifference compare_with_cpu(const ModelSource& source, const std::vector<std::int32_t>& tokens,
                                  std::int64_t first, const std::vector<std::vector<float>>& logits, int threads) {
  const StepPlan plan = one_step(tokens, first, std::ssize(logits));
  const auto pages = static_cast<int>(plan.pages.size());
  Executor cpu(load_model(source, {.dtype = DType::float32, .compute = Compute::float32, .on_progress = {}}),
               {.step = {.max_tokens = static_cast<int>(tokens.size()),
                         .max_sequences = 1,
                         .max_samples = static_cast<int>(logits.size()),
                         .max_pages_per_sequence = pages},
                .page_size = kCheckPageSize,
                .num_pages = pages},
               threads);
  const Tensor expected = cpu.run(plan);
  LogitsDifference result{.rows = std::ssize(logits)};
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto row = logits_row(expected, static_cast<std::int64_t>(i));
    for (std::size_t t = 0; t < row.size(); ++t) {
      result.largest = std::max(result.largest, static_cast<double>(std::abs(logits[i][t] - row[t])));
      result.largest_logit = std::max(result.largest_logit, static_cast<double>(std::abs(row[t])));
    }
    result.same_token += std::max_element(row.begin(), row.end()) - row.begin() ==
                         std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin();
  }
  return result;
}

}  // namespace heddle
