#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "engine/sampler.h"

namespace heddle {

namespace {

// Parses the whole text as a number; nothing if it is none.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "15043=-100"
LogitBias logit_bias_in(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const auto id = number_in<std::int32_t>(std::string_view(text).substr(0, equals));
  const auto bias = number_in<double>(std::string_view(text).substr(std::min(equals + 1, text.size())));
  if (!id || *id < 0 || !bias || !(std::abs(*bias) <= kLargestLogitBias))
    throw CLI::ValidationError("--logit-bias",
                               fmt::format("is \"{}\", expected ID=BIAS, a token and a number from -{} to {}", text,
                                           kLargestLogitBias, kLargestLogitBias));
  return {*id, *bias};
}

std::int32_t stop_id_in(const std::string& text) {
  const auto id = number_in<std::int32_t>(text);
  if (!id || *id < 0)
    throw CLI::ValidationError("--stop-ids", fmt::format("is \"{}\", expected token ids like 13,198", text));
  return *id;
}

// What names tokens by their ids. An occurrence takes one argument: the next may be the model.
void add_token_options(CLI::App& command, SamplingOptions& options) {
  command.add_flag("--ignore-eos", options.ignore_eos,
                   "Go on after the model's own end token, up to --max-tokens or a stop string");
  command
      .add_option_function<std::vector<std::string>>(
          "--stop-ids",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options.stop_ids.push_back(stop_id_in(text));
          },
          "Tokens that end the text, comma-separated ids")
      ->type_name("ID")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options.logit_bias.push_back(logit_bias_in(text));
          },
          "Added to a token's logit, comma-separated; -100 rules it out, 100 forces it")
      ->type_name("ID=BIAS")
      ->delimiter(',')
      ->allow_extra_args(false);
}

}  // namespace

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
  command  // one string an occurrence: the next argument may be the model
      .add_option("--stop", options.stop, "A string that ends the text, and is left out of it; may be given again")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  add_token_options(command, options);
}

std::vector<std::int32_t> eos_ids_of(const GenerationDefaults& defaults, const ModelShape& shape) {
  return defaults.eos_ids.empty() ? shape.eos_ids : defaults.eos_ids;
}

void check_stop_ids(std::span<const std::int32_t> ids, const ModelShape& shape, std::string_view name) {
  for (const std::int32_t id : ids)
    if (id >= shape.vocab_size)
      throw_error<InputError>("{}: token {}, the model knows 0 to {}", name, id, shape.vocab_size - 1);
}

void check_biased_ids(std::span<const LogitBias> biases, const ModelShape& shape, std::string_view name) {
  for (const LogitBias& bias : biases) check_stop_ids(std::span(&bias.id, 1), shape, name);
}

std::vector<std::int32_t> stop_ids_of(const SamplingOptions& options, const GenerationDefaults& defaults,
                                      const ModelShape& shape) {
  check_stop_ids(options.stop_ids, shape, "--stop-ids");
  check_biased_ids(options.logit_bias, shape, "--logit-bias");
  std::vector<std::int32_t> ids = options.stop_ids;
  if (options.ignore_eos) return ids;
  const std::vector<std::int32_t> own = eos_ids_of(defaults, shape);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
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
  std::vector<std::string> unused;
  if (options.top_k) unused.emplace_back("--top-k");
  if (options.top_p) unused.emplace_back("--top-p");
  if (options.min_p) unused.emplace_back("--min-p");
  if (options.seed) unused.emplace_back("--seed");
  if (unused.empty()) return;
  log_warning("{} {} nothing at temperature 0: give a --temperature", list_text(unused),
              unused.size() == 1 ? "changes" : "change");
}

SamplingParams sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  const SamplingParams sampling = merged_sampling(options, defaults);
  if (sampling.temperature == 0) warn_of_unused(options);
  return sampling;
}

}  // namespace heddle
