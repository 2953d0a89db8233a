// Checks that the fused blocks of a decode step share. Each throws InvalidArgument with a message that names the operator
// and the operand.
#pragma once

#include <string_view>

#include "base/dtype.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

// What a fused block reads and writes of the hidden state.
struct BlockRows {
  const Tensor& residual;      // [num_tokens, hidden], float32
  const Tensor& new_residual;  // likewise, elsewhere
  const Tensor& deltas;        // [num_deltas * num_tokens, hidden], float32 or `weights`
  int num_deltas;
  int most_deltas;
  DType weights;
};
void require_block_rows(const BlockRows& rows, std::string_view op);

// One new token for each sequence.
void require_decode_sequences(const PagedSequences& sequences, std::int64_t num_tokens, std::string_view op);

}  // namespace heddle
