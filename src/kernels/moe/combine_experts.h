// y[t] = shared[t] + weights[t][0] * x[row_of[t][0]] + weights[t][1] * x[row_of[t][1]] + ..., in this order, in float32,
// rounded once: what a token's experts produced (route.h, group_rows.h), and what its shared experts did.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

struct CombineExpertsParams {
  Tensor x;                      // [num_tokens * top_k, hidden], float32; on a GPU any dtype
  const float* weights{};        // [num_tokens, top_k]
  const std::int32_t* row_of{};  // [num_tokens, top_k], each in [0, x.rows)
  int top_k = 1;
  Tensor shared;  // [num_tokens, hidden], as x; data null: none
  Tensor y;       // [num_tokens, hidden], as x takes; does not overlap x; may be `shared`
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit. The contents of row_of are a
// precondition.
void combine_experts(const CombineExpertsParams& params, const Lane& lane);

}  // namespace heddle
