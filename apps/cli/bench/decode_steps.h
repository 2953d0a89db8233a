// Decode steps whose attention is computed by separate operators, and by one in each of its forms: what `heddle tune decode`
// measures.
#pragma once

#include <vector>

#include "cli/model_options.h"
#include "parallel/decode_choice.h"

namespace heddle {

// Medians of `repeats` samples of each step of `batches` texts with `contexts` tokens each, interleaved. In the order of both.
// What no fused form takes is left out.
std::vector<DecodeSample> measure_decode(const ModelOptions& model, const std::vector<int>& batches,
                                         const std::vector<int>& contexts, int repeats);

}  // namespace heddle
