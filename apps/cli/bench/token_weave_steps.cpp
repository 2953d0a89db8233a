#include "cli/bench/token_weave_steps.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/bench/record.h"
#include "cli/bench/steps.h"
#include "cli/bench/token_weave.h"
#include "engine/engine.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

// A way to compute a step.
struct WeaveVariant {
  TpMode mode;
  SplitKind split;
};

// 1 and 3: what communication adds. 9: what cutting a step costs, without communication. 11: latency. 14: of one layer.
std::vector<WeaveVariant> variants_of(int figure) {
  if (figure == 1 || figure == 3) return {{TpMode::no_comm, SplitKind::none}, {TpMode::standard, SplitKind::none}};
  if (figure == 9)
    return {{TpMode::no_comm, SplitKind::none},
            {TpMode::no_comm, SplitKind::equal},
            {TpMode::no_comm, SplitKind::smart},
            {TpMode::weave, SplitKind::equal},
            {TpMode::weave, SplitKind::smart}};
  return {{TpMode::no_comm, SplitKind::none}, {TpMode::standard, SplitKind::none}, {TpMode::weave, SplitKind::smart}};
}

std::vector<StepCase> prompts_of(const std::vector<int>& tokens) {
  std::vector<StepCase> cases;
  cases.reserve(tokens.size());
  for (const int count : tokens) cases.push_back({.batch = 1, .context = 0, .num_tokens = count, .step_tokens = count});
  return cases;
}

std::unique_ptr<StepRunner> runner_of(const ModelOptions& model, TpMode mode, const std::vector<StepCase>& cases) {
  ModelOptions options = model;
  options.tp_mode = mode;
  EngineOptions engine;
  for (const StepCase& one : cases) engine.max_tokens_per_step = std::max(engine.max_tokens_per_step, one.num_tokens);
  RankModels ranks = load(*open_model(options.model), options, engine);
  SplitOptions split{.kind = SplitKind::smart, .min_tokens = 1};
  split.transfer_sms = options.transfer_sms.value_or(split.transfer_sms);
  return std::make_unique<StepRunner>(std::move(ranks), cases, engine.threads, 0, split, engine.tables);
}

std::vector<double> samples_of(StepRunner& runner, SplitKind kind, int repeats) {
  runner.split({.kind = kind, .min_tokens = 1});
  runner.sample();  // what happens only the first time
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(repeats));
  for (int i = 0; i < repeats; ++i) seconds.push_back(runner.sample());
  return seconds;
}

}  // namespace

std::vector<SplitSample> measure_splits(const ModelOptions& model, const std::vector<int>& tokens, int repeats,
                                        const FusedTable& sums) {
  const std::vector<StepCase> cases = prompts_of(tokens);
  const std::unique_ptr<StepRunner> runner = runner_of(model, TpMode::weave, cases);
  std::vector<SplitSample> samples;
  for (const StepCase& one : cases) {
    runner->prepare(one);
    // By turns, so that a machine that becomes slower does not decide.
    std::vector<double> whole, split;
    const auto sample = [&](SplitKind kind) {
      runner->split({.kind = kind, .min_tokens = 1});
      const int prefix = runner->prefix_tokens();
      const int summed = std::max(prefix, one.num_tokens - prefix);  // together
      runner->fuse_sums(choices_for({.fused = sums}, summed, 0).fused_sums);
      return samples_of(*runner, kind, 1).front();
    };
    for (int i = 0; i < repeats; ++i) {
      whole.push_back(sample(SplitKind::none));
      split.push_back(sample(SplitKind::smart));
    }
    const bool is_cut = runner->prefix_tokens() > 0;
    samples.push_back({.tokens = one.num_tokens,
                       .whole_seconds = median(whole),
                       .split_seconds = is_cut ? median(split) : median(whole)});
  }
  return samples;
}

std::vector<FusedSample> measure_sums(const ModelOptions& model, const std::vector<int>& tokens, int repeats) {
  const std::vector<StepCase> cases = prompts_of(tokens);
  const std::unique_ptr<StepRunner> runner = runner_of(model, TpMode::fused, cases);
  std::vector<FusedSample> samples;
  for (const StepCase& one : cases) {
    runner->prepare(one);
    std::vector<double> seconds[2];  // separate, fused; by turns
    for (const bool fused : {false, true}) {
      runner->fuse_sums(fused);
      runner->sample();  // what happens only the first time
    }
    for (int i = 0; i < repeats; ++i)
      for (const bool fused : {false, true}) {
        runner->fuse_sums(fused);
        seconds[fused ? 1 : 0].push_back(runner->sample());
      }
    samples.push_back(
        {.tokens = one.num_tokens, .separate_seconds = median(seconds[0]), .fused_seconds = median(seconds[1])});
  }
  return samples;
}

TokenWeaveResult measure_step_figure(const TokenWeaveOptions& options) {
  const InterruptGuard guard;
  const std::vector<StepCase> cases =
      prompts_of(options.tokens.empty() ? std::vector{1024, 2048, 4096, 8192} : options.tokens);
  TokenWeaveResult result;
  result.cells.push_back({"tokens", "mode", "split", "first part", "ms", "of no-comm"});
  SvgChart chart{fmt::format("A step, {}, {} ranks", options.model.model, options.model.ranks), "tokens", "ms", {}};
  std::vector<double> without(cases.size());  // seconds without communication and whole
  std::unique_ptr<StepRunner> runner;
  std::optional<TpMode> loaded;
  for (const WeaveVariant& variant : variants_of(options.figure)) {
    if (loaded != variant.mode) {
      runner.reset();  // its memory goes first
      runner = runner_of(options.model, variant.mode, cases);
      loaded = variant.mode;
    }
    ChartSeries& series = chart.series.emplace_back(
        ChartSeries{fmt::format("{}, {}", name_of(variant.mode), name_of(variant.split)), {}});
    for (std::size_t i = 0; i < cases.size(); ++i) {
      stop_if_interrupted(guard);
      runner->prepare(cases[i]);
      const std::vector<double> seconds = samples_of(*runner, variant.split, options.repeats.value_or(5));
      const double middle = median(seconds);
      if (variant.mode == TpMode::no_comm && variant.split == SplitKind::none) without[i] = middle;
      const double ratio = without[i] > 0 ? middle / without[i] : 0;
      result.rows.push_back({{"tokens", cases[i].num_tokens},
                             {"mode", name_of(variant.mode)},
                             {"split", name_of(variant.split)},
                             {"prefix_tokens", runner->prefix_tokens()},
                             {"seconds", spread(seconds)},
                             {"of_no_comm", ratio}});
      result.cells.push_back({std::to_string(cases[i].num_tokens), std::string(name_of(variant.mode)),
                              std::string(name_of(variant.split)), std::to_string(runner->prefix_tokens()),
                              fmt::format("{:.3f}", 1e3 * middle), fmt::format("{:.3f}", ratio)});
      series.points.push_back({static_cast<double>(cases[i].num_tokens), 1e3 * middle});
    }
  }
  result.svg = svg_of(chart);
  return result;
}

}  // namespace heddle
