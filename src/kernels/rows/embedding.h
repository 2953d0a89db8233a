// y[t] = table[tokens[t]], widened to float32 (rounded to what y is on a GPU).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

struct EmbeddingParams {
  Weight table;                  // [vocab_size, hidden]
  const std::int32_t* tokens{};  // [num_tokens], read when the stream comes to it
  Tensor y;                      // [num_tokens, hidden], float32; on a GPU bfloat16 or float16, too

  // Where the table is a part of one: the token of its first row, and the number of tokens of all parts. Rows of tokens
  // in other parts are zero.
  std::int64_t first_token = 0;
  std::int64_t vocab_size = 0;  // 0: the table is whole
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit. A token outside [0, vocab_size) is found
// when the operator runs: on the CPU the stream then fails with InvalidArgument, on a GPU its row is NaN (whoever
// writes a step checks it, step/step_plan.h).
void embedding(const EmbeddingParams& params, const Lane& lane);

}  // namespace heddle
