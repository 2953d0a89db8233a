// Orders the rows of a mixture of experts by expert: of the num_tokens * top_k pairs of a token and one of its experts,
// those of expert 0 come first, then those of expert 1, ..., each by token and then by slot (a stable counting sort).
#pragma once

#include <cstdint>

#include "base/lane.h"

namespace heddle {

struct GroupRowsParams {
  const std::int32_t* experts{};  // [num_tokens, top_k], each in [0, num_experts)
  std::int64_t num_tokens = 0;
  int top_k = 1;
  int num_experts = 0;        // at most kMaxExperts
  std::int32_t* first_row{};  // [num_experts + 1], out: rows [first_row[e], first_row[e + 1]) are expert e's
  std::int32_t* token_of{};   // [num_tokens * top_k], out: a row's token
  std::int32_t* row_of{};     // [num_tokens, top_k], out: a pair's row
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit. An expert out of range is an error of a CPU
// stream; a GPU takes it for expert 0.
void group_rows(const GroupRowsParams& params, const Lane& lane);

}  // namespace heddle
