// Figures 12 and 13: throughput of whole workloads under each way in which ranks add.
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/bench/interleave.h"
#include "cli/bench/quantile.h"
#include "cli/bench/record.h"
#include "cli/bench/throughput.h"
#include "cli/bench/token_weave.h"
#include "cli/bench/token_weave_steps.h"
#include "cli/format_text.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

constexpr int kMostSequences = 64;

// automatic: what a user gets who says nothing.
std::vector<TpMode> trace_modes(const ModelOptions& model) {
  std::vector<TpMode> modes{TpMode::standard, TpMode::symmetric, TpMode::fused,
                            TpMode::weave,    TpMode::automatic, TpMode::no_comm};
  if (can_shard_sums(model)) modes.insert(std::ranges::find(modes, TpMode::automatic), TpMode::sequence);
  return modes;
}

struct TraceWorkload {
  std::string name;
  ServeLoadOptions load;
};

struct TraceRow {
  std::string workload;
  TpMode mode;
  int step_tokens;
  SplitOptions split;
  std::vector<double> seconds;
  LoadTotals totals;  // of one run

  double rate() const { return static_cast<double>(totals.prompt_tokens + totals.output_tokens) / median(seconds); }
};

// "1024:128"
std::optional<std::pair<int, int>> lengths_in(const std::string& text) {
  constexpr int kMostLineTokens = 1 << 20;
  const auto number = [&](const char* begin, const char* end) -> std::optional<int> {
    int value = 0;
    const auto [rest, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || rest != end || value < 1 || value > kMostLineTokens) return std::nullopt;
    return value;
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto input = number(text.data(), text.data() + colon);
  const auto output = number(text.data() + colon + 1, text.data() + text.size());
  if (!input || !output) return std::nullopt;
  return std::pair(*input, *output);
}

std::vector<TraceWorkload> workloads_of(const TokenWeaveOptions& options, bool on_gpus) {
  std::vector<std::string> lengths = options.lengths;
  if (lengths.empty() && options.trace_file.empty())
    lengths = on_gpus ? std::vector<std::string>{"1024:128", "2048:128", "4096:128"}
                      : std::vector<std::string>{"64:16", "256:16"};
  std::vector<TraceWorkload> workloads;
  const ServeLoadOptions plain{.num_requests = options.num_prompts};
  for (const std::string& text : lengths) {
    const auto of = lengths_in(text);
    if (!of)
      throw_error<InputError>("--lengths: is \"{}\", expected tokens of prompt and answer, such as 1024:128",
                              printable_text(text));
    TraceWorkload& workload = workloads.emplace_back(TraceWorkload{text, plain});
    workload.load.prompt_tokens = of->first;
    workload.load.output_tokens = of->second;
  }
  if (!options.trace_file.empty()) {
    TraceWorkload& workload = workloads.emplace_back(TraceWorkload{"trace", plain});
    workload.load.trace = options.trace_file;
  }
  for (const TraceWorkload& workload : workloads) plan_load(workload.load);  // what is wrong is said before hours pass
  return workloads;
}

std::vector<int> step_sizes_of(const TokenWeaveOptions& options, bool on_gpus) {
  if (!options.step_tokens.empty()) return options.step_tokens;
  if (options.figure == 12) return {on_gpus ? 2048 : 128};
  return on_gpus ? std::vector{1024, 2048, 4096, 8192} : std::vector{64, 128, 256, 512};
}

std::int64_t longest_request(const std::vector<TraceWorkload>& workloads) {
  std::int64_t longest = 2;
  for (const TraceWorkload& workload : workloads) {
    const LoadPlan plan = plan_load(workload.load);
    for (const LoadRequest& request : plan.requests)
      longest = std::max<std::int64_t>(longest, std::int64_t{request.prompt_tokens} + request.output_tokens);
  }
  return longest;
}

struct TraceEngine {
  TpMode mode;
  SplitOptions split;
  std::unique_ptr<Engine> engine;
};

// All modes' engines of a size are there at once, so each cache has room for the longest requests alone.
TraceEngine engine_for(const ModelSource& source, const TokenWeaveOptions& options, TpMode mode, int step_tokens,
                       std::int64_t longest) {
  ModelOptions model = options.model;
  model.tp_mode = mode;
  model.max_sequences = std::min({kMostSequences, step_tokens, options.num_prompts});  // a token each
  model.context = longest;
  model.split_tokens = mode == TpMode::weave ? model.split_tokens : std::nullopt;
  EngineOptions of_engine{.max_tokens_per_step = step_tokens, .max_logit_rows = *model.max_sequences};
  RankModels ranks = load(source, model, of_engine);
  return {mode, of_engine.split, std::make_unique<Engine>(std::move(ranks), of_engine)};
}

std::vector<TraceRow> measure_traces(const TokenWeaveOptions& options, const std::vector<TraceWorkload>& workloads,
                                     const std::vector<int>& step_sizes) {
  const InterruptGuard guard;
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  const std::int64_t longest = longest_request(workloads);
  std::vector<TraceRow> rows;
  for (const int step_tokens : step_sizes) {
    std::vector<TraceEngine> engines;
    const std::vector<TpMode> modes = trace_modes(options.model);
    engines.reserve(modes.size());
    for (const TpMode mode : modes) engines.push_back(engine_for(*source, options, mode, step_tokens, longest));
    for (const TraceWorkload& workload : workloads) {
      const std::size_t first = rows.size();
      for (TraceEngine& one : engines) {
        run_load(*one.engine, workload.load, guard);  // what happens only the first time, such as graphs of its batches
        rows.push_back({workload.name, one.mode, step_tokens, one.split, {}, {}});
      }
      for (int i = 0; i < options.repeats.value_or(3); ++i)
        for (std::size_t turn = 0; turn < engines.size(); ++turn) {
          const std::size_t index = interleaved(i, turn, engines.size());
          TraceRow& row = rows[first + index];
          row.totals = run_load(*engines[index].engine, workload.load, guard);
          row.seconds.push_back(row.totals.seconds);
        }
    }
  }
  return rows;
}

std::string svg_of_traces(const TokenWeaveOptions& options, const std::vector<TraceWorkload>& workloads,
                          const std::vector<int>& step_sizes, const std::vector<TraceRow>& rows) {
  const std::string of = fmt::format("{}, {} ranks", options.model.model, options.model.ranks);
  if (options.figure == 13) {
    SvgChart chart{"Throughput by the tokens of a step, " + of, "tokens of a step at most", "tokens/s", {}};
    for (const TraceRow& row : rows) {
      const std::string name = fmt::format("{}, {}", name_of(row.mode), row.workload);
      auto series = std::ranges::find(chart.series, name, &ChartSeries::name);
      if (series == chart.series.end()) series = chart.series.insert(series, {name, {}});
      series->points.push_back({static_cast<double>(row.step_tokens), row.rate()});
    }
    return svg_of(chart);
  }
  SvgBars bars{fmt::format("Throughput, {}, steps of {} tokens", of, step_sizes.front()), "tokens/s", {}, {}};
  for (const TraceRow& row : rows)  // each workload has a row of every mode
    if (row.workload == workloads.front().name && row.step_tokens == step_sizes.front())
      bars.series.emplace_back(name_of(row.mode));
  for (const TraceWorkload& workload : workloads) {
    BarGroup& group = bars.groups.emplace_back(BarGroup{workload.name, {}});
    for (const TraceRow& row : rows)
      if (row.workload == workload.name && row.step_tokens == step_sizes.front()) group.values.push_back(row.rate());
  }
  return svg_of(bars);
}

}  // namespace

TokenWeaveResult measure_trace_figure(const TokenWeaveOptions& options) {
  const bool on_gpus = device_of(*open_model(options.model.model), options.model).kind == DeviceKind::cuda;
  const std::vector<TraceWorkload> workloads = workloads_of(options, on_gpus);
  const std::vector<int> step_sizes = step_sizes_of(options, on_gpus);
  const std::vector<TraceRow> rows = measure_traces(options, workloads, step_sizes);
  TokenWeaveResult result;
  result.cells.push_back({"workload", "mode", "step tokens", "requests", "s", "p10", "p90", "tokens/s", "of default",
                          "split from", "steps in two parts"});
  for (const TraceRow& row : rows) {
    const auto is_default = [&](const TraceRow& other) {
      return other.mode == TpMode::standard && other.workload == row.workload && other.step_tokens == row.step_tokens;
    };
    const double of_default = row.rate() / std::ranges::find_if(rows, is_default)->rate();
    result.rows.push_back({{"workload", row.workload},
                           {"mode", name_of(row.mode)},
                           {"step_tokens", row.step_tokens},
                           {"requests", options.num_prompts},
                           {"prompt_tokens", row.totals.prompt_tokens},
                           {"output_tokens", row.totals.output_tokens},
                           {"seconds", spread(row.seconds)},
                           {"tokens_per_second", row.rate()},
                           {"of_default", of_default},
                           {"split_tokens", split_tokens_of(row.split)},
                           {"steps", row.totals.steps},
                           {"steps_in_two_parts", row.totals.steps_in_parts}});
    result.cells.push_back({row.workload, std::string(name_of(row.mode)), std::to_string(row.step_tokens),
                            std::to_string(options.num_prompts), fmt::format("{:.3f}", median(row.seconds)),
                            fmt::format("{:.3f}", quantile(row.seconds, 0.1)),
                            fmt::format("{:.3f}", quantile(row.seconds, 0.9)), fmt::format("{:.1f}", row.rate()),
                            fmt::format("{:.3f}", of_default),
                            row.split.kind == SplitKind::none ? "-" : std::to_string(row.split.min_tokens),
                            fmt::format("{} of {}", row.totals.steps_in_parts, row.totals.steps)});
  }
  result.svg = svg_of_traces(options, workloads, step_sizes, rows);
  return result;
}

}  // namespace heddle
