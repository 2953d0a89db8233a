// head_linear on a GPU. head_linear.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/linear/head_linear.h"

namespace heddle {

void head_linear_sm90(const HeadLinearParams& params, const Lane& lane);

}  // namespace heddle
