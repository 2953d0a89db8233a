// GEMM for many tokens with cuBLASLt, accumulating in float32. The algorithm is a function of GPU, shape, dtypes,
// strides, alignment, role and the lane's SMs. It is the first of cuBLASLt's heuristic, or for some roles another one
// that the heuristic offers (linear_sm90_large_cuda.cpp), and is cached per process.
#pragma once

#include <cstddef>

#include "base/lane.h"
#include "kernels/linear/gemm_tile.h"
#include "kernels/linear/linear.h"

namespace heddle {

// Whether cuBLASLt supports these dtypes: x and W alike, y the same or float32.
bool is_for_cublas_lt(const LinearParams& params);

struct LargeGemm {
  LinearParams params;
  const void* bias;     // [out_features], of y's dtype, added to the float32 sums; null: none
  Workspace workspace;  // aligned to 256 bytes
};

// Enqueues on the lane's CUDA stream. Throws Failure when cuBLASLt is missing or has no algorithm for the GEMM.
void linear_large(const LargeGemm& gemm, const Lane& lane);

// The tile of the algorithm that linear_large() would run; 128 x 128 where cuBLASLt names one that is not known here.
GemmTile large_tile(const LargeGemm& gemm, const Lane& lane);

}  // namespace heddle
