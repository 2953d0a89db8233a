#include "cli/bench/throughput.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "cli/bench/record.h"
#include "cli/bench/serve.h"
#include "cli/bench/serve_load.h"
#include "cli/bench/write_record.h"
#include "cli/number_option.h"
#include "engine/engine.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct ThroughputOptions {
  ModelOptions model;
  ServeLoadOptions load{.num_requests = 64};
  std::optional<std::string> json_file;
};

// Nobody waits for a first token here, so steps on a GPU are as large as make it efficient (docs/notes/serving.md).
constexpr int kGpuSequences = 256, kGpuStepTokens = 16384;

std::vector<std::int32_t> random_prompt(int length, std::int64_t vocab_size, std::mt19937_64& random) {
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(vocab_size) - 1);
  std::vector<std::int32_t> prompt(static_cast<std::size_t>(length));
  for (std::int32_t& id : prompt) id = token(random);
  return prompt;
}

BenchResult bench_throughput(const ThroughputOptions& options) {
  const InterruptGuard guard;
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  EngineOptions engine_options;
  if (device_of(*source, options.model).kind == DeviceKind::cuda) {
    engine_options.max_sequences = kGpuSequences;
    engine_options.max_tokens_per_step = kGpuStepTokens;
  }
  RankModels ranks = load(*source, options.model, engine_options);
  Engine engine(std::move(ranks), engine_options);
  const LoadTotals totals = run_load(engine, options.load, guard);
  const auto per_second = [&](double count) { return totals.seconds > 0 ? count / totals.seconds : 0; };
  const double output_rate = per_second(static_cast<double>(totals.output_tokens));
  const double total_rate = per_second(static_cast<double>(totals.prompt_tokens + totals.output_tokens));
  BenchResult result;
  result.fields = {{"num_requests", totals.num_requests},
                   {"prompt_tokens", totals.prompt_tokens},
                   {"output_tokens", totals.output_tokens},
                   {"steps", totals.steps},
                   {"steps_in_two_parts", totals.steps_in_parts},
                   {"split_tokens", split_tokens_of(engine_options.split)},
                   {"seconds", totals.seconds},
                   {"requests_per_s", per_second(totals.num_requests)},
                   {"output_tokens_per_s", output_rate},
                   {"total_tokens_per_s", total_rate},
                   {"gb_per_s", per_second(1e-9 * static_cast<double>(totals.bytes_read))}};
  result.table = table_text(
      {{"requests", "prompt tokens", "output tokens", "steps", "s", "output tokens/s", "tokens/s"},
       {std::to_string(totals.num_requests), std::to_string(totals.prompt_tokens), std::to_string(totals.output_tokens),
        std::to_string(totals.steps), fmt::format("{:.2f}", totals.seconds), fmt::format("{:.1f}", output_rate),
        fmt::format("{:.1f}", total_rate)}});
  return result;
}

void run_throughput(const ThroughputOptions& options) {
  BenchOptions head;
  head.model = options.model;
  RecordFile file("throughput", head, options.json_file);
  file.write(bench_throughput(options));
}

}  // namespace

nlohmann::ordered_json split_tokens_of(const SplitOptions& split) {
  if (split.kind == SplitKind::none) return nullptr;
  return split.min_tokens;
}

LoadTotals run_load(Engine& engine, const ServeLoadOptions& load, const InterruptGuard& guard) {
  std::mt19937_64 random(load.seed);
  // Nothing stops an answer before its length: end tokens are ordinary ones here.
  const std::vector<LoadRequest> requests = plan_load(load).requests;
  for (const LoadRequest& request : requests)
    engine.submit({.prompt = random_prompt(request.prompt_tokens, engine.model_shape().vocab_size, random),
                   .max_tokens = request.output_tokens});
  LoadTotals totals{.num_requests = static_cast<int>(requests.size())};
  const std::int64_t in_parts_before = engine.part_counts().in_two_parts;
  const auto begin = SteadyClock::now();
  while (!engine.idle()) {
    stop_if_interrupted(guard);
    const auto outputs = engine.step();
    for (const TokenOutput& output : outputs)
      if (output.finish == FinishReason::error) throw Failure(output.error);
    const StepStatistics& step = engine.last_step();
    totals.prompt_tokens += step.num_prompt_tokens;
    totals.output_tokens += step.num_sampled;
    totals.bytes_read += step.bytes_read;
    ++totals.steps;
  }
  totals.steps_in_parts = engine.part_counts().in_two_parts - in_parts_before;
  totals.seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  return totals;
}

void add_throughput_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<ThroughputOptions>();
  CLI::App* command =
      bench.add_subcommand("throughput",
                           "Many requests at once through the engine, without a server: tokens/s; on a GPU 256 at once "
                           "and 16384 tokens of a step, unless options say otherwise");
  add_model_options(*command, options->model);
  add_tensor_parallel_options(*command, options->model);
  add_limit_options(*command, options->model, Sequences::many);
  add_number_option<int>(*command, "--num-prompts", options->load.num_requests, "Requests; default 64, also of a trace",
                         {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--input-len", options->load.prompt_tokens, "Tokens of a prompt; default 256",
                         {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--output-len", options->load.output_tokens, "Tokens of an answer; default 64",
                         {.min = 1, .max = 1 << 20});
  add_number_option<double>(*command, "--range", options->load.range,
                            "Lengths are uniform from 1 - RANGE to 1 + RANGE times those; default 0",
                            {.min = 0, .max = 0.99});
  command
      ->add_option("--trace", options->load.trace,
                   "Lengths from a file: a JSON object a line, {\"prompt_tokens\", \"output_tokens\"}")
      ->type_name("FILE");
  add_number_option<std::uint64_t>(*command, "--seed", options->load.seed, "Of lengths and prompts; default 1");
  add_json_option(*command, options->json_file);
  command->callback([options] { run_throughput(*options); });
}

}  // namespace heddle
