// y[i] = x[rows[i]]: the hidden states of the tokens whose logits are wanted.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct GatherRowsParams {
  Tensor x;                    // [num_tokens, hidden], float32; on a GPU bfloat16 or float16, too
  const std::int32_t* rows{};  // [num_rows], each in [0, num_tokens)
  Tensor y;                    // [num_rows, hidden], as x; apart from x
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit. A row outside [0, num_tokens) is
// found when the operator runs: on the CPU the stream then fails with InvalidArgument, on a GPU the row of y is NaN.
void gather_rows(const GatherRowsParams& params, const Lane& lane);

}  // namespace heddle
