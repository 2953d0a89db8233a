// The product for many tokens: cuBLASLt, sums in float32. How it computes a product is asked for once and remembered,
// for this process, by device, shape, dtypes, strides and alignment.
#pragma once

#include <cstddef>

#include "base/stream.h"
#include "kernels/linear.h"

namespace heddle {

// Whether cuBLASLt multiplies these dtypes: x and W alike, y alike or float32.
bool is_for_cublas_lt(const LinearParams& params);

struct LargeProduct {
  LinearParams params;
  const void* bias;  // [out_features], of y's dtype; null: none
  void* workspace;   // aligned to 256 bytes
  std::size_t workspace_bytes;
};

// Enqueues on `stream`, a CUDA stream. Throws Failure when cuBLASLt is not there or has no way to compute it.
void linear_large(const LargeProduct& product, Stream& stream);

// Runs the ways that cuBLASLt offers for `product` on `stream`, and remembers the fastest. Synchronizes.
void tune_linear_large(const LargeProduct& product, Stream& stream);

}  // namespace heddle
