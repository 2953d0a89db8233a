// linear() of few tokens with a matrix of few rows, as a router's: linear_few_rows_sm90.cu.
#pragma once

#include "base/lane.h"
#include "kernels/linear/linear.h"

namespace heddle {

// Whether linear_few_rows() takes these operands, and is to be preferred: a router's. require_linear() has accepted them.
bool is_for_few_rows(const LinearParams& params);

// Enqueues on the lane's CUDA stream.
void linear_few_rows(const LinearParams& params, const Lane& lane);

}  // namespace heddle
