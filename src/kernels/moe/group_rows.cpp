#include "kernels/moe/group_rows.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/moe/group_rows_sm90.h"
#include "kernels/moe/route.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

// One thread: a step has a few thousand pairs.
void group_rows_cpu(const GroupRowsParams& params) {
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  std::fill_n(params.first_row, params.num_experts + 1, 0);
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    const std::int32_t expert = params.experts[pair];
    require(expert >= 0 && expert < params.num_experts, "group_rows: experts[{}] is {}, of {}", pair, expert,
            params.num_experts);
    ++params.first_row[expert + 1];
  }
  std::array<std::int32_t, kMaxExperts> next;
  for (int expert = 0; expert < params.num_experts; ++expert) {
    next[static_cast<std::size_t>(expert)] = params.first_row[expert];
    params.first_row[expert + 1] += params.first_row[expert];
  }
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    const std::int32_t row = next[static_cast<std::size_t>(params.experts[pair])]++;
    params.row_of[pair] = row;
    params.token_of[row] = static_cast<std::int32_t>(pair / params.top_k);
  }
}

}  // namespace

void group_rows(const GroupRowsParams& params, const Lane& lane) {
  require(params.num_experts >= 1 && params.num_experts <= kMaxExperts, "group_rows: {} experts, at most {}",
          params.num_experts, kMaxExperts);
  require(params.num_tokens >= 0 && params.top_k >= 1 && params.top_k <= kMaxTopExperts &&
              params.num_tokens <= std::numeric_limits<std::int32_t>::max() / params.top_k,
          "group_rows: {} tokens with {} experts each", params.num_tokens, params.top_k);
  require_array(params.experts, params.num_tokens, "group_rows", "experts");
  require_array(params.first_row, params.num_tokens, "group_rows", "first_row");
  require_array(params.token_of, params.num_tokens, "group_rows", "token_of");
  require_array(params.row_of, params.num_tokens, "group_rows", "row_of");
  if (params.num_tokens == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return group_rows_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool&) { group_rows_cpu(params); });
}

}  // namespace heddle
