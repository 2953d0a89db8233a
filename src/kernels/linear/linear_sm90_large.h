// GEMM for many tokens: cuBLASLt, sums in float32. The algorithm is the one that cuBLASLt's heuristic names first, or
// by role another that it names (linear_sm90_large_cuda.cpp): a function of GPU, shape, dtypes, strides, alignment,
// role and the lane's SMs. It is asked for once and kept; nobody can set another.
#pragma once

#include <cstddef>

#include "base/lane.h"
#include "kernels/linear/linear.h"

namespace heddle {

// Whether cuBLASLt multiplies these dtypes: x and W alike, y alike or float32.
bool is_for_cublas_lt(const LinearParams& params);

struct LargeProduct {
  LinearParams params;
  const void* bias;     // [out_features], of y's dtype, added to the float32 sums; null: none
  Workspace workspace;  // aligned to 256 bytes
};

// Enqueues on the lane's stream, a CUDA stream. Throws Failure when cuBLASLt is not there or has no way to compute it.
void linear_large(const LargeProduct& product, const Lane& lane);

}  // namespace heddle
