// mixture() on a GPU: mixture_sm90.cu.
#pragma once

#include "kernels/moe/mixture.h"

namespace heddle {

void mixture_sm90(const MixtureParams& params, const Lane& lane);

}  // namespace heddle
