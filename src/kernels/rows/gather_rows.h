// y[i] = x[rows[i]]: selects the hidden states of the tokens whose logits are needed, or copies tokens for each of their
// experts (moe/group_rows.h).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct GatherRowsParams {
  Tensor x;                    // [num_tokens, hidden], float32 or bfloat16; on a GPU float16, too
  const std::int32_t* rows{};  // [num_rows], each in [0, num_tokens)
  Tensor y;                    // [num_rows, hidden], as x; does not overlap x
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit. A row outside [0, num_tokens) is
// detected when the operator runs: a CPU stream fails with InvalidArgument, a GPU writes a row of NaN.
void gather_rows(const GatherRowsParams& params, const Lane& lane);

}  // namespace heddle
