// y[t] = table[tokens[t]], widened to float32 (on a GPU rounded to y's dtype).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

struct EmbeddingParams {
  Weight table;                  // [vocab_size, hidden]
  const std::int32_t* tokens{};  // [num_tokens], read when the stream reaches the operator
  Tensor y;                      // [num_tokens, hidden], float32; on a GPU bfloat16 or float16, too

  // Where the table is a part of one: the token of its first row, and the number of tokens of all parts. Rows of tokens
  // in other parts are zero.
  std::int64_t first_token = 0;
  std::int64_t vocab_size = 0;  // 0: the table is whole
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit. A token outside [0, vocab_size) is detected
// when the operator runs: a CPU stream fails with InvalidArgument, a GPU writes a row of NaN (step/step_plan.h checks
// tokens).
void embedding(const EmbeddingParams& params, const Lane& lane);

}  // namespace heddle
