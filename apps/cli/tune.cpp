// heddle tune: measures choices on this machine, and keeps them in its tuned store.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/bench/decode_steps.h"
#include "cli/bench/record.h"
#include "cli/bench/token_weave_steps.h"
#include "cli/commands.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "machine/machine.h"
#include "machine/tuned_store.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

struct StepTuneOptions {
  ModelOptions model;
  std::vector<int> tokens{256, 512, 1024, 2048, 4096, 8192};
  int repeats = 5;
};

void tune_token_weave(const StepTuneOptions& options) {
  if (options.model.ranks < 2) throw InputError("tune token-weave: one rank exchanges nothing; give --tp N");
  std::vector<int> tokens = options.tokens;
  std::ranges::sort(tokens);
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  const SplitKey key = split_key_of(*source, options.model.ranks, device_of(*source, options.model));
  // Against the fastest whole steps that are known: as `heddle tune sums` has left it, otherwise as by default.
  const FusedTable sums = tuned_fused(store, key).value_or(FusedTable{{.fused = false}});
  const std::vector<SplitSample> samples = measure_splits(options.model, tokens, options.repeats, sums);
  const SplitOptions chosen = choose_split(samples);
  put_tuned_split(store, key, chosen);

  std::vector<std::vector<std::string>> table{{"tokens", "whole ms", "in two parts ms"}};
  for (const SplitSample& sample : samples)
    table.push_back({std::to_string(sample.tokens), fmt::format("{:.3f}", 1e3 * sample.whole_seconds),
                     fmt::format("{:.3f}", 1e3 * sample.split_seconds)});
  write_stdout(table_text(table));
  write_stdout(
      chosen.kind == SplitKind::none
          ? "no step is computed in two parts: the largest measured one is not faster so\n"
          : fmt::format("--tp-mode weave computes steps of {} tokens or more in two parts\n", chosen.min_tokens));
}

void tune_sums(const StepTuneOptions& options) {
  if (options.model.ranks < 2) throw InputError("tune sums: one rank sums nothing; give --tp N");
  std::vector<int> tokens = options.tokens;
  std::ranges::sort(tokens);
  const std::vector<FusedSample> samples = measure_sums(options.model, tokens, options.repeats);
  const FusedTable chosen = choose_fused(samples);
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  put_tuned_fused(store, split_key_of(*source, options.model.ranks, device_of(*source, options.model)), chosen);

  std::vector<std::vector<std::string>> table{{"tokens", "separate ms", "fused ms", "chosen"}};
  for (const FusedSample& sample : samples) {
    const bool fused = choices_for({.fused = chosen}, sample.tokens, 0).fused_sums;
    table.push_back({std::to_string(sample.tokens), fmt::format("{:.3f}", 1e3 * sample.separate_seconds),
                     fmt::format("{:.3f}", 1e3 * sample.fused_seconds), fused ? "fused" : "separate"});
  }
  write_stdout(table_text(table));
  write_stdout(
      "--tp-mode auto chooses so for steps of up to as many tokens, and as the last line says for larger ones\n");
}

struct DecodeTuneOptions {
  ModelOptions model;
  std::vector<int> batches{1, 4, 16};
  std::vector<int> contexts{1024, 4096, 16384};
  int repeats = 5;
};

void tune_decode(DecodeTuneOptions options) {
  std::ranges::sort(options.batches);
  std::ranges::sort(options.contexts);
  const std::vector<DecodeSample> samples =
      measure_decode(options.model, options.batches, options.contexts, options.repeats);
  const DecodeTable chosen = choose_decode(samples);
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  put_tuned_decode(store, split_key_of(*source, options.model.ranks, device_of(*source, options.model)), chosen);

  std::vector<std::vector<std::string>> table{
      {"texts", "context", "separate ms", "fused ms", "fastest fused", "chosen"}};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const DecodeSample& sample = samples[i];
    const auto fastest = std::ranges::min_element(sample.fused, {}, &DecodeSample::Fused::seconds);
    const bool none = fastest == sample.fused.end();
    table.push_back({std::to_string(sample.tokens), std::to_string(sample.context),
                     fmt::format("{:.3f}", 1e3 * sample.plain_seconds),
                     none ? "-" : fmt::format("{:.3f}", 1e3 * fastest->seconds),
                     none ? "not taken" : text_of(fastest->choice), chosen[i].choice.fused() ? "fused" : "separate"});
  }
  write_stdout(table_text(table));
  write_stdout(
      "--decode auto chooses so for steps of up to as many texts and tokens in each, and as the last lines say for "
      "larger "
      "ones\n");
}

void add_tune_options(CLI::App& command, StepTuneOptions& options) {
  add_model_options(command, options.model);
  add_ranks_option(command, options.model.ranks);
  command
      .add_option(
          "--tokens", options.tokens,
          fmt::format("Tokens of the measured steps; default {} to {}", options.tokens.front(), options.tokens.back()))
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 17));
  add_number_option<int>(command, "--repeats", options.repeats, "Times each step runs; default 5",
                         {.min = 1, .max = 1000});
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* tune = app.add_subcommand("tune", "Measure choices on this machine and keep them");
  tune->require_subcommand(1);
  const auto options = std::make_shared<StepTuneOptions>();
  CLI::App* command = tune->add_subcommand(
      "token-weave", "From which number of tokens on a model's steps are faster in two parts (--tp-mode weave)");
  add_tune_options(*command, *options);
  command->callback([options] { tune_token_weave(*options); });

  const auto of_sums = std::make_shared<StepTuneOptions>();
  of_sums->tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  CLI::App* sums = tune->add_subcommand(
      "sums",
      "For which numbers of tokens a model's steps are faster with sum over ranks, residual and norm in one "
      "operator (--tp-mode auto)");
  add_tune_options(*sums, *of_sums);
  sums->callback([of_sums] { tune_sums(*of_sums); });

  const auto of_decode = std::make_shared<DecodeTuneOptions>();
  CLI::App* decode = tune->add_subcommand(
      "decode",
      "For which numbers of texts and contexts a model's decode steps are faster with attention, its norm and its "
      "projections in one operator (--decode auto)");
  add_model_options(*decode, of_decode->model);
  add_ranks_option(*decode, of_decode->model.ranks);
  decode->add_option("--batch", of_decode->batches, "Texts that decode together; default 1,4,16")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 12));
  decode->add_option("--context", of_decode->contexts, "Tokens of each text; default 1024,4096,16384")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  add_number_option<int>(*decode, "--repeats", of_decode->repeats, "Times each step runs; default 5",
                         {.min = 1, .max = 1000});
  decode->callback([of_decode] { tune_decode(*of_decode); });
}

}  // namespace heddle
