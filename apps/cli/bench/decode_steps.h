// Decode steps whose attention is computed by separate operators, and by one in each of its forms: what `heddle tune decode`
// measures.
#pragma once

#include <chrono>
#include <vector>

#include "cli/model_options.h"
#include "parallel/decode_choice.h"

namespace heddle {

// Medians of `repeats` samples of each step in each form, interleaved. Left out, with the reason, is what no fused form takes,
// what does not fit the memory that is free, and, but for the first, what would take longer than is left of `budget`.
std::vector<DecodeSample> measure_decode(const ModelOptions& model, std::vector<DecodeSample> cases, int repeats,
                                         std::chrono::seconds budget);

}  // namespace heddle
