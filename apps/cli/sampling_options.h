// The sampling options of the commands that generate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/generation_defaults.h"

namespace CLI {
class App;
}

namespace heddle {

// The user's options; unset ones have the model's default.
struct SamplingOptions {
  std::int64_t max_tokens = 256;
  std::optional<double> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
};

// --max-tokens (default: the value in `options`), --temperature, --top-k, --top-p, --min-p, --repetition-penalty,
// --presence-penalty, --frequency-penalty, --seed and --stop. `options` must outlive `command`.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

// The folder's defaults, overridden by the user's options; a random seed if none is given. Throws InputError when a
// value is out of range or a stop string is empty.
SamplingParams merged_sampling(const SamplingOptions& options, const GenerationDefaults& defaults);

// Warns of options that change nothing at temperature 0.
void warn_of_unused(const SamplingOptions& options);

// Both: merges, and warns if the temperature is 0.
SamplingParams sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults);

}  // namespace heddle
