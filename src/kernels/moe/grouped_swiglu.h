// gather_rows() of tokens for their experts, grouped_linear() of gate and up stacked, then swiglu() of its result: the
// first half of a mixture of experts (rows/gather_rows.h, grouped_linear.h, rows/swiglu.h).
//
// On a GPU this is one kernel where all dtypes are the same one of 16 bits, in_features is a multiple of 8, intermediate is
// even, and x, the weights and their rows are 16-byte aligned. It rounds y only. With more than four rows a group on average
// tensor cores add in another order, so a token's bits depend on the number of tokens. Otherwise three kernels run.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/moe/grouped_linear.h"

namespace heddle {

struct GroupedSwigluParams {
  Tensor x;                        // [num_tokens, in_features], as gather_rows() takes it
  const std::int32_t* token_of{};  // [num_rows], each in [0, num_tokens)
  GroupedLinearParams gate_up;  // x, [num_rows, in_features], and y, [num_rows, 2 * intermediate], are scratch: written
                                // or not
  Tensor y;                     // [num_rows, intermediate], as swiglu() takes it; overlaps nothing else
};

// Whether these operands take one kernel on `device`.
bool is_fused(const GroupedSwigluParams& params, Device device);

// Enqueues on the lane's stream. Throws as the three operators do.
void grouped_swiglu(const GroupedSwigluParams& params, const Lane& lane);

}  // namespace heddle
