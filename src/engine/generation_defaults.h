// What a model's folder says about generating with it in generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "step/step_plan.h"

namespace heddle {

struct GenerationDefaults {
  SamplingParams sampling;            // greedy unless the file samples (do_sample)
  std::vector<std::int32_t> eos_ids;  // empty: the file does not say, and config.json's hold
};

// Of generation_config.json: do_sample, temperature (1 when it samples and does not say), top_k, top_p, min_p,
// repetition_penalty, eos_token_id (a number or a list). Filters count only when it samples. Throws InputError on
// values of the wrong type or out of range.
GenerationDefaults read_generation_defaults(const JsonField& generation_config);

}  // namespace heddle
