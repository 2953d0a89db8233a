// y[i] = x[rows[i]]: the hidden states of the tokens whose logits are wanted.
#pragma once

#include <cstdint>

#include "base/stream.h"
#include "base/tensor.h"

namespace heddle {

struct GatherRowsParams {
  Tensor x;  // [num_tokens, hidden], float32
  const std::int32_t*
      rows{};  // [num_rows], each in [0, num_tokens): found wrong when the operator runs, the stream fails
  Tensor y;    // [num_rows, hidden], float32; apart from x
};

// Enqueues on `stream`, a CPU stream. Throws InvalidArgument unless shapes fit.
void gather_rows(const GatherRowsParams& params, Stream& stream);

}  // namespace heddle
