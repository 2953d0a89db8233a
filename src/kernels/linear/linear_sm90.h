// The CUDA side of linear.h.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear.h"

namespace heddle {

// linear() has checked `params`; a CUDA stream. Throws Failure when CUDA or cuBLASLt reports an error.
void linear_sm90(const LinearParams& params, const Lane& lane);

}  // namespace heddle
