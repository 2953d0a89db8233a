// y[t] = table[tokens[t]], widened to float32.
#pragma once

#include <cstdint>

#include "base/stream.h"
#include "base/tensor.h"
#include "kernels/weight.h"

namespace heddle {

struct EmbeddingParams {
  Weight table;                  // [vocab_size, hidden]
  const std::int32_t* tokens{};  // [num_tokens], read when the stream comes to it
  Tensor y;                      // [num_tokens, hidden], float32
};

// Enqueues on `stream`, a CPU stream. Throws InvalidArgument unless shapes fit. A token outside [0, vocab_size) is
// found when the operator runs; the stream then fails with InvalidArgument.
void embedding(const EmbeddingParams& params, Stream& stream);

}  // namespace heddle
