#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "cli/number_option.h"
#include "engine/sampler.h"

namespace heddle {

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  add_number_option<std::int64_t>(command, "--max-tokens", options.max_tokens, "Tokens to generate at most", {.min = 1})
      ->default_str(std::to_string(options.max_tokens));
  add_number_option<double>(command, "--temperature", options.temperature,
                            "0: greedy (default, unless generation_config.json samples)", {.min = 0});
  add_number_option<std::int32_t>(command, "--top-k", options.top_k, "Keep the k likeliest tokens; 0: all", {.min = 0});
  add_number_option<double>(command, "--top-p", options.top_p,
                            "Keep the likeliest tokens up to this sum of probabilities", {.min = 0, .max = 1});
  add_number_option<double>(command, "--min-p", options.min_p,
                            "Keep tokens of at least this share of the likeliest one's probability",
                            {.min = 0, .max = 1});
  add_number_option<double>(command, "--repetition-penalty", options.repetition_penalty,
                            "Divide logits of tokens seen before; 1: off");
  add_number_option<double>(command, "--presence-penalty", options.presence_penalty,
                            "Subtract from logits of tokens generated before");
  add_number_option<double>(command, "--frequency-penalty", options.frequency_penalty,
                            "Subtract from logits of tokens generated before, times how often");
  add_number_option<std::uint64_t>(command, "--seed", options.seed,
                                   "Seed of the random numbers: the same seed gives the same text");
  command.add_option("--stop", options.stop, "Strings that end the text, and are left out of it");
}

SamplingParams merged_sampling(const SamplingOptions& options, const GenerationDefaults& defaults) {
  for (const std::string& stop : options.stop)
    if (stop.empty()) throw InputError("--stop: a stop string is empty; it would end every text before it begins");
  SamplingParams sampling = defaults.sampling;
  const auto override_with = [](const auto& option, auto& value) {
    if (option) value = *option;
  };
  override_with(options.temperature, sampling.temperature);
  override_with(options.top_k, sampling.top_k);
  override_with(options.top_p, sampling.top_p);
  override_with(options.min_p, sampling.min_p);
  override_with(options.repetition_penalty, sampling.repetition_penalty);
  override_with(options.presence_penalty, sampling.presence_penalty);
  override_with(options.frequency_penalty, sampling.frequency_penalty);
  sampling.seed = options.seed ? *options.seed : std::random_device()();
  validate(sampling);
  return sampling;
}

void warn_of_unused(const SamplingOptions& options) {
  if (options.top_k || options.top_p || options.min_p || options.seed)
    log_warning("--top-k, --top-p, --min-p and --seed change nothing at temperature 0: give a --temperature");
}

SamplingParams sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  const SamplingParams sampling = merged_sampling(options, defaults);
  if (sampling.temperature == 0) warn_of_unused(options);
  return sampling;
}

}  // namespace heddle
