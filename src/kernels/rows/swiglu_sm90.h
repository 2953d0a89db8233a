// swiglu on a GPU. swiglu.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/rows/swiglu.h"

namespace heddle {

void swiglu_sm90(const SwigluParams& params, const Lane& lane);

}  // namespace heddle
