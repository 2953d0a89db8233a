// heddle tune: measures choices on this machine, and keeps them in its tuned store.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/bench/decode_cases.h"
#include "cli/bench/decode_steps.h"
#include "cli/bench/record.h"
#include "cli/bench/token_weave_steps.h"
#include "cli/commands.h"
#include "cli/launched.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/tune_gather.h"
#include "machine/machine.h"
#include "machine/tuned_store.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

struct StepTuneOptions {
  ModelOptions model;
  std::vector<int> tokens;
  int repeats = 9;
};

// The store of this machine, and what a model's choices are found by.
struct Tuned {
  TunedStore store{default_tuned_store_file(), machine_key(), HEDDLE_VERSION};
  SplitKey key;

  explicit Tuned(const ModelOptions& model) {
    const std::unique_ptr<ModelSource> source = open_model(model.model);
    key = split_key_of(*source, model, devices_of(*source, model));
  }
};

// Measures how sums are fastest, keeps it and prints it.
SumTable keep_sums(Tuned& tuned, const ModelOptions& model, const std::vector<int>& sizes, int repeats) {
  const std::vector<SumSample> samples = measure_sums(model, sizes, repeats);
  SumTable chosen = choose_sums(samples);
  put_tuned_sums(tuned.store, tuned.key, chosen);
  std::vector<std::vector<std::string>> table{{"tokens", "separate ms", "fused ms", "sharded ms", "chosen"}};
  table.reserve(samples.size() + 1);
  for (const SumSample& sample : samples) {
    const SumForm form = choices_for({.forms = chosen}, sample.tokens, 0).sums;
    table.push_back({std::to_string(sample.tokens), fmt::format("{:.3f}", 1e3 * sample.separate_seconds),
                     fmt::format("{:.3f}", 1e3 * sample.fused_seconds),
                     sample.sharded_seconds ? fmt::format("{:.3f}", 1e3 * *sample.sharded_seconds) : "-",
                     std::string(name_of(form))});
  }
  write_stdout(table_text(table));
  return chosen;
}

constexpr int kSumTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

// Where `heddle tune sums` has not run: its sizes up to those of the steps, whose parts are smaller.
std::vector<int> sizes_of_sums(const std::vector<int>& steps) {
  std::vector<int> sizes = steps;
  std::ranges::copy_if(kSumTokens, std::back_inserter(sizes), [&](int size) { return size < steps.back(); });
  return sorted_once(std::move(sizes));
}

std::vector<std::string> cells_of(const SplitSample& sample, int granule) {
  std::vector<std::string> cells{std::to_string(sample.tokens),
                                 fmt::format("{:.3f}", 1e3 * median(sample.whole_seconds))};
  if (sample.prefix_tokens == 0) {
    cells.insert(cells.end(), {"-", fmt::format("cannot be cut: fewer than two tiles of {}", granule), "-", "-"});
    return cells;
  }
  const PairedRatio ratio = paired_ratio(sample);
  cells.insert(
      cells.end(),
      {fmt::format("{:.3f}", 1e3 * median(sample.split_seconds)), fmt::format("{:.3f}", ratio.median),
       fmt::format("{:.3f} to {:.3f}", ratio.low, ratio.high), fmt::format("{:.0f} %", 100 * ratio.confidence)});
  return cells;
}

std::string text_of(const std::optional<SplitOptions>& chosen, const MeasuredSplits& measured) {
  if (!chosen) {
    const bool cut = std::ranges::any_of(measured.samples, [](const auto& one) { return one.prefix_tokens > 0; });
    return cut ? fmt::format("no threshold is chosen: fewer than {} pairs say too little (--repeats)\n", kFewestPairs)
               : fmt::format("no threshold is chosen: none of these steps can be cut, since tiles have {} tokens\n",
                             measured.granule);
  }
  if (chosen->kind == SplitKind::none)
    return "no step is computed in two parts: the interval of the largest one that can be cut is not below 0.99\n";
  return fmt::format("--tp-mode weave computes steps of {} tokens or more in two parts\n", chosen->min_tokens);
}

// Steps are summed as --tp-mode weave and auto will sum them: by the table of `heddle tune sums`, which is made here if there
// is none. Steps in two parts are not sharded, and neither are they whole here.
void tune_token_weave(const StepTuneOptions& options) {
  require_no_run("tune token-weave");
  if (options.model.ranks < 2) throw InputError("tune token-weave: one rank exchanges nothing; give --tp N");
  const std::vector<int> tokens = sorted_once(options.tokens);
  Tuned tuned(options.model);
  std::optional<SumTable> sums = tuned_sums(tuned.store, tuned.key);
  if (!sums) sums = keep_sums(tuned, options.model, sizes_of_sums(tokens), options.repeats);
  const MeasuredSplits measured = measure_splits(options.model, tokens, options.repeats, unsharded(*sums));
  const std::optional<SplitOptions> chosen = choose_split(measured.samples);
  if (chosen) put_tuned_split(tuned.store, tuned.key, *chosen);

  std::vector<std::vector<std::string>> table{
      {"tokens", "whole ms", "in two parts ms", "ratio", "interval", "confidence"}};
  table.reserve(measured.samples.size() + 1);
  for (const SplitSample& sample : measured.samples) table.push_back(cells_of(sample, measured.granule));
  write_stdout(table_text(table));
  write_stdout(text_of(chosen, measured));
}

void tune_sums(const StepTuneOptions& options) {
  require_no_run("tune sums");
  if (options.model.ranks < 2) throw InputError("tune sums: one rank sums nothing; give --tp N");
  Tuned tuned(options.model);
  keep_sums(tuned, options.model, sorted_once(options.tokens), options.repeats);
  write_stdout(
      "--tp-mode auto, weave and sequence choose so for steps of up to as many tokens, and as the last line says for "
      "larger "
      "ones\n");
}

struct DecodeTuneOptions {
  ModelOptions model;
  std::vector<int> batches{1, 4, 16};
  std::vector<int> contexts{1024, 4096, 16384};
  int repeats = 5;
  int seconds = 300;
};

void tune_decode(DecodeTuneOptions options) {
  require_no_run("tune decode");
  std::ranges::sort(options.batches);
  std::ranges::sort(options.contexts);
  const std::vector<DecodeSample> samples =
      measure_decode(options.model, decode_cases(options.batches, options.contexts), options.repeats,
                     std::chrono::seconds(options.seconds));
  const DecodeTable chosen = choose_decode(samples);
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  const DeviceKind device = devices_of(*source, options.model).front().kind;
  std::vector<std::vector<std::string>> table{
      {"texts", "context", "separate ms", "fused ms", "fastest fused", "chosen"}};
  auto line = chosen.begin();
  for (const DecodeSample& sample : samples) {
    std::vector<std::string>& row =
        table.emplace_back(std::vector{std::to_string(sample.tokens), std::to_string(sample.context)});
    if (!sample.left_out.empty()) {
      row.insert(row.end(), {"-", "-", "left out: " + sample.left_out, "-"});
      continue;
    }
    const auto fastest = std::ranges::min_element(sample.fused, {}, &DecodeSample::Fused::seconds);
    row.insert(row.end(),
               {fmt::format("{:.3f}", 1e3 * sample.plain_seconds), fmt::format("{:.3f}", 1e3 * fastest->seconds),
                text_of(fastest->choice, device), (line++)->choice.fused() ? "fused" : "separate"});
  }
  write_stdout(table_text(table));
  if (chosen.empty()) {
    write_stdout("nothing was measured, and nothing is kept\n");
    return;
  }
  Tuned tuned(options.model);
  put_tuned_decode(tuned.store, tuned.key, chosen);
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
  add_number_option<int>(command, "--repeats", options.repeats, "Times each step runs; default 9",
                         {.min = 1, .max = 1000});
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* tune = app.add_subcommand("tune", "Measure choices on this machine and keep them");
  tune->require_subcommand(1);
  const auto options = std::make_shared<StepTuneOptions>();
  CLI::App* command =
      tune->add_subcommand("token-weave",
                           "From which number of tokens on a model's steps are faster in two parts (--tp-mode weave); "
                           "measures sums, too, where heddle tune sums has not run");
  options->tokens = {256, 512, 1024, 2048, 4096, 8192};
  add_tune_options(*command, *options);
  add_transfer_sms_option(*command, options->model);
  command->callback([options] { tune_token_weave(*options); });

  const auto of_sums = std::make_shared<StepTuneOptions>();
  of_sums->tokens.assign(std::begin(kSumTokens), std::end(kSumTokens));
  CLI::App* sums = tune->add_subcommand(
      "sums",
      "For which numbers of tokens a model's steps are faster with sum over ranks, residual and norm in one "
      "operator, and for which with norms divided by token (--tp-mode auto)");
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
  add_number_option<int>(*decode, "--seconds", of_decode->seconds,
                         "Steps that would take longer than is left of so many seconds are left out; default 300",
                         {.min = 1, .max = 100000});
  decode->callback([of_decode] { tune_decode(*of_decode); });

  add_tune_gather(*tune);
}

}  // namespace heddle
