#include "engine/warm_up_step.h"

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace heddle {

void make_warm_up_step(const StepShape& shape, const ExecutorLimits& limits, StepPlan& plan) {
  plan.clear();
  const int most = std::min(limits.step.max_pages_per_sequence, limits.num_pages) * limits.page_size;
  const int longest = std::min(shape.max_query_len, most);
  for (int i = 0; i < shape.num_sequences; ++i) {
    const int count = i == 0 ? longest : 1;
    const auto first_page = static_cast<std::int32_t>(plan.pages.size());
    const int num_pages = ceil_div(count, limits.page_size);
    for (int page = 0; page < num_pages; ++page) plan.pages.push_back(page);
    plan.sequences.push_back({.request = -1,
                              .first_token = static_cast<std::int32_t>(plan.tokens.size()),
                              .num_tokens = count,
                              .context_len = count,
                              .first_page = first_page,
                              .num_pages = num_pages});
    for (int position = 0; position < count; ++position) {
      plan.tokens.push_back(0);
      plan.positions.push_back(position);
    }
  }
  const auto num_tokens = static_cast<int>(plan.tokens.size());
  for (int row = num_tokens - std::min(shape.num_logit_rows, num_tokens); row < num_tokens; ++row) {
    const int sequence = std::max(0, row - longest + 1);
    plan.samples.push_back({.sequence = sequence, .row = row, .position = sequence == 0 ? row + 1 : 1, .params = {}});
  }
}

}  // namespace heddle
