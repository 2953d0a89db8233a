// Compares the wafer's logits with the CPU's, computed from the same weights in float32.
#pragma once

#include <cstdint>
#include <vector>

#include "weights/model_source.h"

namespace heddle {

struct LogitsDifference {
  double largest = 0;           // difference of any logit
  double largest_logit = 0;     // of the CPU's, absolute
  std::int64_t rows = 0;        // compared rows
  std::int64_t same_token = 0;  // rows in which both have the same likeliest token
};

// logits[i], [vocab], are those after tokens[first + i]. The CPU computes all tokens in one step, with weights and KV
// cache in float32. Throws as load_model and Executor do.
LogitsDifference compare_with_cpu(const ModelSource& source, const std::vector<std::int32_t>& tokens,
                                  std::int64_t first, const std::vector<std::vector<float>>& logits, int threads);

}  // namespace heddle
