// tokens[i] = chosen[~tokens[i]] where tokens[i] < 0: fills in tokens that the previous step sampled on the device and
// that the host does not know yet.
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

// Enqueues on the lane's stream. A row for which nothing was sampled (kUnsoundRow, or no such entry) becomes token 0,
// which every model knows; the caller ignores the row. Throws InvalidArgument when an array is missing.
void take_tokens(const TakeTokensParams& params, const Lane& lane);

}  // namespace heddle
