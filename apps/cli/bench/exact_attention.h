// Attention of a few rows in float64, which benchmarks of attention hold their values to.
#pragma once

#include <span>
#include <vector>

#include "base/dtype.h"

namespace heddle {

// softmax(q K^T * scale) V of one head. q has any rows, K and V have as many each; head_dim elements a row, contiguous.
std::vector<float> exact_attention(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                                   int head_dim, float scale);

// The relative_error() up to which values of attention in this dtype are right: bfloat16 rounds weights and y.
constexpr double most_attention_error(DType dtype) {
  return dtype == DType::float32 ? 1e-5 : 0.02;
}

}  // namespace heddle
