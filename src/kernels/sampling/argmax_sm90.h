// argmax on a GPU. argmax.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/sampling/argmax.h"

namespace heddle {

void argmax_sm90(const ArgmaxParams& params, const Lane& lane);

}  // namespace heddle
