// tokens[i] = chosen[~tokens[i]] where tokens[i] < 0: rows of a step whose token the step before has chosen, on the
// device, while the host does not know it yet.
#pragma once

#include <cstdint>

#include "base/lane.h"

namespace heddle {

struct TakeTokensParams {
  std::int32_t* tokens{};        // [num_tokens], in place
  const std::int32_t* chosen{};  // [num_chosen]; on a GPU its memory or pinned memory of the host
  std::int32_t num_tokens = 0;
  std::int32_t num_chosen = 0;
};

// Enqueues on the lane's stream. Where nothing was chosen (`chosen` has kUnsoundRow, or no such entry) the token
// becomes 0: a token that models know, of a row that is to be ignored. Throws InvalidArgument when an array is missing.
void take_tokens(const TakeTokensParams& params, const Lane& lane);

}  // namespace heddle
