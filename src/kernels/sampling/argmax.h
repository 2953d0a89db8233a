// tokens[r] = the id of the largest logit of row r; of equal ones the smallest id.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

// Instead of a token: the row has a NaN, +infinity or no finite logit, which no sound model gives.
inline constexpr std::int32_t kUnsoundRow = -1;

struct ArgmaxParams {
  Tensor logits;           // [num_rows, vocab_size], float32
  std::int32_t* tokens{};  // [num_rows], ids or kUnsoundRow
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit.
void argmax(const ArgmaxParams& params, const Lane& lane);

// The same for one row, synchronously on the host.
std::int32_t argmax_of(const float* logits, std::int64_t vocab_size);

}  // namespace heddle
