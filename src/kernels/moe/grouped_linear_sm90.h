// grouped_linear on a GPU. grouped_linear.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/moe/grouped_linear.h"

namespace heddle {

void grouped_linear_sm90(const GroupedLinearParams& params, const Lane& lane);

}  // namespace heddle
