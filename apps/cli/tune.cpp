// heddle tune: measures choices on this machine, and keeps them in its tuned store.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
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

struct TuneWeaveOptions {
  ModelOptions model;
  std::vector<int> tokens{256, 512, 1024, 2048, 4096, 8192};
  int repeats = 5;
};

void tune_token_weave(const TuneWeaveOptions& options) {
  if (options.model.ranks < 2) throw InputError("tune token-weave: one rank exchanges nothing; give --tp N");
  std::vector<int> tokens = options.tokens;
  std::ranges::sort(tokens);
  const std::vector<SplitSample> samples = measure_splits(options.model, tokens, options.repeats);
  const SplitOptions chosen = choose_split(samples);
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  put_tuned_split(store, split_key_of(*source, options.model.ranks, device_of(*source, options.model)), chosen);

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

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* tune = app.add_subcommand("tune", "Measure choices on this machine and keep them");
  tune->require_subcommand(1);
  const auto options = std::make_shared<TuneWeaveOptions>();
  CLI::App* command = tune->add_subcommand(
      "token-weave", "From which number of tokens on a model's steps are faster in two parts (--tp-mode weave)");
  add_model_options(*command, options->model);
  add_ranks_option(*command, options->model.ranks);
  command->add_option("--tokens", options->tokens, "Tokens of the measured steps; default 256 to 8192, doubling")
      ->delimiter(',')
      ->check(CLI::Range(2, 1 << 17));
  add_number_option<int>(*command, "--repeats", options->repeats, "Times each step runs; default 5",
                         {.min = 1, .max = 1000});
  command->callback([options] { tune_token_weave(*options); });
}

}  // namespace heddle
