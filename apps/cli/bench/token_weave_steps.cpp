#include "cli/bench/token_weave_steps.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/progress.h"
#include "cli/bench/device.h"
#include "cli/bench/interleave.h"
#include "cli/bench/operator.h"
#include "cli/bench/quantile.h"
#include "cli/bench/record.h"
#include "cli/bench/steps.h"
#include "cli/bench/token_weave.h"
#include "engine/engine.h"
#include "machine/cpu.h"
#include "models/registry.h"
#include "weights/model_source.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

// A way to compute a step.
struct WeaveVariant {
  TpMode mode;
  SplitKind split;
};

// 1: what communication adds. 9: what cutting a step costs, without communication. 11: latency. 14: of one layer.
std::vector<WeaveVariant> variants_of(int figure) {
  if (figure == 1) return {{TpMode::no_comm, SplitKind::none}, {TpMode::standard, SplitKind::none}};
  if (figure == 9)
    return {{TpMode::no_comm, SplitKind::none},
            {TpMode::no_comm, SplitKind::equal},
            {TpMode::no_comm, SplitKind::smart},
            {TpMode::weave, SplitKind::equal},
            {TpMode::weave, SplitKind::smart}};
  return {{TpMode::no_comm, SplitKind::none}, {TpMode::standard, SplitKind::none}, {TpMode::symmetric, SplitKind::none},
          {TpMode::fused, SplitKind::none},   {TpMode::weave, SplitKind::smart},   {TpMode::sequence, SplitKind::none}};
}

std::vector<StepCase> prompts_of(const std::vector<int>& tokens) {
  std::vector<StepCase> cases;
  cases.reserve(tokens.size());
  for (const int count : tokens) cases.push_back({.batch = 1, .context = 0, .num_tokens = count, .step_tokens = count});
  return cases;
}

std::vector<StepCase> cases_of(const TokenWeaveOptions& options) {
  return prompts_of(options.tokens.empty() ? std::vector{1024, 2048, 4096, 8192} : options.tokens);
}

std::unique_ptr<StepRunner> runner_of(const ModelOptions& model, TpMode mode, const std::vector<StepCase>& cases) {
  ModelOptions options = model;
  options.tp_mode = mode;
  EngineOptions engine;
  for (const StepCase& one : cases) engine.max_tokens_per_step = std::max(engine.max_tokens_per_step, one.num_tokens);
  RankModels ranks = load(*open_model(options.model), options, engine);
  SplitOptions split{.kind = SplitKind::smart, .min_tokens = 1};
  split.transfer_sms = options.transfer_sms.value_or(split.transfer_sms);
  if (mode == TpMode::no_comm) split.transfer_sms = 0;  // nothing crosses ranks, so computation has all SMs
  return std::make_unique<StepRunner>(std::move(ranks), cases, engine.threads, 0, split, engine.tables);
}

// Figure 14's time of a layer: that of a step of two layers without that of a step of one, which has embedding, last norm,
// logits and their gather, too.
constexpr int kLayerFigure = 14;
constexpr std::string_view kOneLayer = ",layers=1", kTwoLayers = ",layers=2";

ModelOptions with_two_layers(const ModelOptions& model) {
  const std::size_t at = model.model.find(kOneLayer);
  const bool ends = at != std::string::npos &&
                    (at + kOneLayer.size() == model.model.size() || model.model[at + kOneLayer.size()] == ',');
  if (!parse_synthetic_name(model.model) || !ends)
    throw_error<InputError>("bench token-weave: figure 14 is of one layer; give --model synth:NAME{}", kOneLayer);
  ModelOptions two = model;
  two.model.replace(at, kOneLayer.size(), kTwoLayers);
  return two;
}

// The steps of one variant.
struct VariantSteps {
  WeaveVariant variant;
  StepRunner* runner;
  StepRunner* less;  // what is subtracted; null: nothing
  std::vector<double> seconds = {};

  void prepare(const StepCase& one) {
    seconds.clear();
    for (StepRunner* const each : {runner, less})
      if (each != nullptr) {
        each->prepare(one);
        sample_of(*each);  // what happens only the first time
      }
  }
  void sample() { seconds.push_back(sample_of(*runner) - (less == nullptr ? 0 : sample_of(*less))); }

  // Variants of a mode share a runner.
  double sample_of(StepRunner& of) const {
    of.split({.kind = variant.split, .min_tokens = 1});
    return of.sample();
  }
  int prefix_tokens() const {
    runner->split({.kind = variant.split, .min_tokens = 1});
    return runner->prefix_tokens();
  }
};

// On a terminal: the tokens of all steps that a tuner runs, since a step's time is about that of its tokens.
class StepProgress {
 public:
  StepProgress(const ModelOptions& model, const std::vector<StepCase>& cases, int steps_of_a_case)
      : bar_("tune", total_tokens(cases) * static_cast<std::size_t>(steps_of_a_case), kTokens,
             shown_unless(model.quiet)) {}

  double sample(StepRunner& runner, const StepCase& of) {
    const double seconds = runner.sample();
    bar_.update(done_ += static_cast<std::size_t>(of.num_tokens));
    return seconds;
  }

 private:
  static std::size_t total_tokens(const std::vector<StepCase>& cases) {
    std::size_t tokens = 0;
    for (const StepCase& one : cases) tokens += static_cast<std::size_t>(one.num_tokens);
    return tokens;
  }

  std::size_t done_ = 0;
  Progress bar_;
};

}  // namespace

bool can_shard_sums(const ModelOptions& model) {
  const std::unique_ptr<ModelSource> source = open_model(model.model);
  return !describe_model(source->config()).experts;
}

MeasuredSplits measure_splits(const ModelOptions& model, const std::vector<int>& tokens, int repeats,
                              const SumTable& sums) {
  const std::vector<StepCase> cases = prompts_of(tokens);
  const std::unique_ptr<StepRunner> runner = runner_of(model, TpMode::weave, cases);
  MeasuredSplits measured{.samples = {}, .granule = runner->granule()};
  StepProgress progress(model, cases, 2 * (1 + repeats));
  for (const StepCase& one : cases) {
    runner->prepare(one);
    const auto become = [&](SplitKind kind) {
      runner->split({.kind = kind, .min_tokens = 1});
      const int prefix = runner->prefix_tokens();
      const int summed = std::max(prefix, one.num_tokens - prefix);  // together
      runner->sum_as(choices_for({.forms = sums}, summed, 0).sums);
    };
    become(SplitKind::smart);
    SplitSample& sample = measured.samples.emplace_back(SplitSample{
        .tokens = one.num_tokens, .prefix_tokens = runner->prefix_tokens(), .whole_seconds = {}, .split_seconds = {}});
    for (const SplitKind kind : {SplitKind::none, SplitKind::smart}) {
      become(kind);
      progress.sample(*runner, one);  // what happens only the first time
    }
    // By turns, and each of the two first every other time, so that a machine that becomes slower does not decide.
    for (int i = 0; i < repeats; ++i)
      for (const SplitKind kind :
           {i % 2 == 0 ? SplitKind::none : SplitKind::smart, i % 2 == 0 ? SplitKind::smart : SplitKind::none}) {
        if (kind == SplitKind::smart && sample.prefix_tokens == 0) continue;
        become(kind);
        (kind == SplitKind::none ? sample.whole_seconds : sample.split_seconds)
            .push_back(progress.sample(*runner, one));
      }
  }
  return measured;
}

std::vector<SumSample> measure_sums(const ModelOptions& model, const std::vector<int>& tokens, int repeats) {
  const std::vector<StepCase> cases = prompts_of(tokens);
  std::vector<SumForm> forms{SumForm::separate, SumForm::fused};
  if (can_shard_sums(model)) forms.push_back(SumForm::sharded);
  const std::unique_ptr<StepRunner> runner =
      runner_of(model, forms.back() == SumForm::sharded ? TpMode::sequence : TpMode::fused, cases);
  std::vector<SumSample> samples;
  const auto num_forms = static_cast<int>(forms.size());
  StepProgress progress(model, cases, num_forms * (1 + repeats));
  for (const StepCase& one : cases) {
    runner->prepare(one);
    runner->split({.kind = SplitKind::none, .min_tokens = 1});
    std::vector<std::vector<double>> seconds(forms.size());
    for (int round = -1; round < repeats; ++round)  // the first has what happens only the first time
      for (std::size_t turn = 0; turn < forms.size(); ++turn) {
        const std::size_t i = interleaved(round, turn, forms.size());
        runner->sum_as(forms[i]);
        const double taken = progress.sample(*runner, one);
        if (round >= 0) seconds[i].push_back(taken);
      }
    SumSample& sample = samples.emplace_back(SumSample{
        .tokens = one.num_tokens, .separate_seconds = median(seconds[0]), .fused_seconds = median(seconds[1])});
    if (forms.size() > 2) sample.sharded_seconds = median(seconds[2]);
  }
  return samples;
}

TokenWeaveResult measure_step_figure(const TokenWeaveOptions& options) {
  const InterruptGuard guard;
  const bool of_layer = options.figure == kLayerFigure;
  const ModelOptions whole = of_layer ? with_two_layers(options.model) : options.model;
  const std::vector<StepCase> cases = cases_of(options);
  TokenWeaveResult result;
  result.cells.push_back({"tokens", "mode", "split", "first part", "ms", "p10", "p90", "of no-comm"});
  SvgChart chart{
      fmt::format("{}, {}, {} ranks", of_layer ? "A layer" : "A step", options.model.model, options.model.ranks),
      "tokens",
      "ms",
      {}};
  std::map<TpMode, std::unique_ptr<StepRunner>> runners, runners_of_less;
  std::vector<VariantSteps> variants;
  const bool can_shard = can_shard_sums(options.model);
  for (const WeaveVariant& variant : variants_of(options.figure)) {
    if (variant.mode == TpMode::sequence && !can_shard) continue;
    std::unique_ptr<StepRunner>& runner = runners[variant.mode];
    if (runner == nullptr) runner = runner_of(whole, variant.mode, cases);
    std::unique_ptr<StepRunner>& less = runners_of_less[variant.mode];
    if (of_layer && less == nullptr) less = runner_of(options.model, variant.mode, cases);
    variants.push_back({variant, runner.get(), less.get()});
    chart.series.push_back({fmt::format("{}, {}", name_of(variant.mode), name_of(variant.split)), {}});
  }
  const int repeats = options.repeats.value_or(5);
  for (const StepCase& one : cases) {
    for (VariantSteps& variant : variants) variant.prepare(one);
    for (int i = 0; i < repeats; ++i)
      for (std::size_t turn = 0; turn < variants.size(); ++turn) {
        stop_if_interrupted(guard);
        variants[interleaved(i, turn, variants.size())].sample();
      }
    const double without = median(variants.front().seconds);  // communication, whole
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const auto& [variant, runner, less, seconds] = variants[i];
      const double middle = median(seconds);
      // A layer is a difference of two steps, which noise may make nothing or less: then there is no ratio.
      const bool comparable = middle > 0 && without > 0;
      const double ratio = comparable ? middle / without : 0;
      const int prefix = variants[i].prefix_tokens();
      result.rows.push_back({{"tokens", one.num_tokens},
                             {"mode", name_of(variant.mode)},
                             {"split", name_of(variant.split)},
                             {"prefix_tokens", prefix},
                             {"seconds", spread(seconds)},
                             {"of_no_comm", comparable ? nlohmann::ordered_json(ratio) : nlohmann::ordered_json()}});
      result.cells.push_back({std::to_string(one.num_tokens), std::string(name_of(variant.mode)),
                              std::string(name_of(variant.split)), std::to_string(prefix),
                              fmt::format("{:.3f}", 1e3 * middle), fmt::format("{:.3f}", 1e3 * quantile(seconds, 0.1)),
                              fmt::format("{:.3f}", 1e3 * quantile(seconds, 0.9)),
                              comparable ? fmt::format("{:.3f}", ratio) : "-"});
      chart.series[i].points.push_back({static_cast<double>(one.num_tokens), 1e3 * middle});
    }
  }
  result.svg = svg_of(chart);
  return result;
}

// The step is that of --tp-mode default, where each rank normalises all tokens behind an all-reduce. A norm is timed alone in
// the shapes of rank 0, as `heddle bench operator` does: on every device, and without what it waits for.
TokenWeaveResult measure_norm_share_figure(const TokenWeaveOptions& options) {
  const InterruptGuard guard;
  const ModelOptions& model = options.model;
  const std::vector<StepCase> cases = cases_of(options);
  const std::unique_ptr<StepRunner> runner = runner_of(model, TpMode::standard, cases);
  const std::unique_ptr<ModelSource> source = open_model(model.model);
  const RankModels outlines =
      outline_ranks(*source, {.device = runner->device(), .dtype = model.dtype, .compute = model.compute}, model.ranks);
  const int repeats = options.repeats.value_or(5);
  BenchDevice device(runner->device(), std::max(1, num_threads(model, discover_cpu().usable_threads) / model.ranks));
  OperatorTimes norms(device, repeats, {"rmsnorm"}, guard);
  TokenWeaveResult result;
  result.cells.push_back({"tokens", "norms", "ms of norms", "ms of the step", "p10", "p90", "norms of the step"});
  SvgChart chart{
      fmt::format("RMSNorm in a step, {}, {} ranks", model.model, model.ranks), "tokens", "%", {{"norms", {}}}};
  for (const StepCase& one : cases) {
    runner->prepare(one);
    runner->split({});
    runner->sample();  // what happens only the first time
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
      stop_if_interrupted(guard);
      seconds.push_back(runner->sample());
    }
    int count = 0;
    double norm_seconds = 0;
    const nlohmann::ordered_json measured = norms.measure({.model = *outlines.front().model,
                                                           .sizes = describe_model(source->config()),
                                                           .tokens = one.num_tokens,
                                                           .page_size = runner->page_size()});
    for (const nlohmann::ordered_json& norm : measured.at("operators")) {
      if (norm.at("operator") != "rmsnorm" || norm.contains("failed")) continue;  // of heads: follow no all-reduce
      const int calls = norm.at("calls_per_step");
      count += calls;
      norm_seconds += calls * norm.at("seconds").at("median").get<double>();
    }
    const double middle = median(seconds), share = norm_seconds / middle;
    result.rows.push_back({{"tokens", one.num_tokens},
                           {"norms", count},
                           {"norm_seconds", norm_seconds},
                           {"seconds", spread(seconds)},
                           {"of_step", share}});
    result.cells.push_back({std::to_string(one.num_tokens), std::to_string(count),
                            fmt::format("{:.3f}", 1e3 * norm_seconds), fmt::format("{:.3f}", 1e3 * middle),
                            fmt::format("{:.3f}", 1e3 * quantile(seconds, 0.1)),
                            fmt::format("{:.3f}", 1e3 * quantile(seconds, 0.9)), fmt::format("{:.1f} %", 100 * share)});
    chart.series.front().points.push_back({static_cast<double>(one.num_tokens), 100 * share});
  }
  if (!norms.wrong().empty())
    throw_error<Failure>("{} is not what the CPU computes: nothing of this figure counts", norms.wrong());
  result.svg = svg_of(chart);
  return result;
}

}  // namespace heddle
