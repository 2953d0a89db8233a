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
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit. A token outside [0, vocab_size) is detected
// when the operator runs: a CPU stream fails with InvalidArgument, a GPU writes a row of NaN (step/step_plan.h checks
// tokens).
void embedding(const EmbeddingParams& params, const Lane& lane);

}  // namespace heddle
