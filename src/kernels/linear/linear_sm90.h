// The CUDA side of linear.h.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear.h"

namespace heddle {

// linear() has checked `params`; a CUDA stream. Throws Failure when CUDA or cuBLASLt reports an error.
void linear_sm90(const LinearParams& params, const Lane& lane);

// The same by cuBLASLt, which linear_sm90() prefers for many tokens: for tests and benches that compare kernels. Operands
// that is_for_cublas_lt() (linear_sm90_large.h).
void linear_cublas_lt(const LinearParams& params, const Lane& lane);

}  // namespace heddle
