// The CUDA side of linear.h.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear.h"

namespace heddle {

// `params` as linear() has checked them, on a CUDA stream. Throws Failure when CUDA or cuBLASLt refuses.
void linear_sm90(const LinearParams& params, const Lane& lane);

}  // namespace heddle
