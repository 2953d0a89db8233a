// The sampling options of the commands that generate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation_defaults.h"
#include "engine/token_history.h"
#include "models/model.h"

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
  bool ignore_eos = false;             // the model's own end tokens do not end a text
  std::vector<std::int32_t> stop_ids;  // tokens that end a text, too
  std::vector<LogitBias> logit_bias;
};

// --max-tokens (default: the value in `options`), --temperature, --top-k, --top-p, --min-p, --repetition-penalty,
// --presence-penalty, --frequency-penalty, --seed, --stop, --ignore-eos, --stop-ids and --logit-bias. `options` must
// outlive `command`.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

// The folder's defaults, overridden by the user's options; a random seed if none is given. Throws InputError when a
// value is out of range or a stop string is empty.
SamplingParams merged_sampling(const SamplingOptions& options, const GenerationDefaults& defaults);

// Warns of options that change nothing at temperature 0.
void warn_of_unused(const SamplingOptions& options);

// Both: merges, and warns if the temperature is 0.
SamplingParams sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults);

// The model's own end tokens: those of generation_config.json, else of config.json.
std::vector<std::int32_t> eos_ids_of(const GenerationDefaults& defaults, const ModelShape& shape);

// Throws InputError, which begins with `name`, when the model does not know one of the tokens.
void check_stop_ids(std::span<const std::int32_t> ids, const ModelShape& shape, std::string_view name);
void check_biased_ids(std::span<const LogitBias> biases, const ModelShape& shape, std::string_view name);

// The tokens that end a text: the model's own, unless they are to be ignored; and the user's. Throws as check_stop_ids.
std::vector<std::int32_t> stop_ids_of(const SamplingOptions& options, const GenerationDefaults& defaults,
                                      const ModelShape& shape);

}  // namespace heddle
