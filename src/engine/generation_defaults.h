// Defaults for generation from the model's generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "step/step_plan.h"

namespace heddle {

struct GenerationDefaults {
  SamplingParams sampling;            // greedy unless do_sample is true
  std::vector<std::int32_t> eos_ids;  // empty: not given; those of config.json apply
};

// Reads do_sample, temperature (1 if missing and it samples), top_k, top_p, min_p, repetition_penalty and eos_token_id
// (a number or a list). Filters apply only if it samples. Throws InputError on values of the wrong type or out of
// range.
GenerationDefaults read_generation_defaults(const JsonField& generation_config);

}  // namespace heddle
