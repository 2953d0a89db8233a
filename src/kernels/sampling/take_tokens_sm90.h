// take_tokens on a GPU. take_tokens.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/sampling/take_tokens.h"

namespace heddle {

void take_tokens_sm90(const TakeTokensParams& params, const Lane& lane);

}  // namespace heddle
