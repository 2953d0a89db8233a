// The product for few tokens: linear_sm90_stream.cuh.
#pragma once

#include "base/stream.h"
#include "kernels/linear.h"

namespace heddle {

// Whether linear_stream() takes these operands: number of tokens, dtypes, alignment.
bool is_for_stream(const LinearParams& params);

// Enqueues on `stream`, a CUDA stream.
void linear_stream(const LinearParams& params, Stream& stream);

}  // namespace heddle
