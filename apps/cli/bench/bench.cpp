// heddle bench: speed of a model on this machine, compared with the machine's limits and with baselines.
#include "cli/bench/bench.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cli/bench/block.h"
#include "cli/bench/cluster.h"
#include "cli/bench/collective.h"
#include "cli/bench/flag.h"
#include "cli/bench/fused.h"
#include "cli/bench/operator_cases.h"
#include "cli/bench/record.h"
#include "cli/bench/sequence_attention.h"
#include "cli/bench/serve.h"
#include "cli/bench/token_weave.h"
#include "cli/bench/write_record.h"
#include "cli/commands.h"
#include "cli/launched.h"
#include "cli/number_option.h"

namespace heddle {
namespace {

constexpr int kMostContext = 1 << 20;

void add_batches_option(CLI::App& command, BenchOptions& options) {
  add_numbers_option(command, "--batch", options.batches, "Sequences in a step, comma-separated; default 1",
                     {.min = 1, .max = 1024});
}

// "1x1024,16x4096": batch and context. Add it after those two options.
void add_cases_option(CLI::App& command, BenchOptions& options) {
  command
      .add_option_function<std::string>(
          "--case",
          [&options](const std::string& text) {
            const char* next = text.data();
            const char* const last = text.data() + text.size();
            const auto number = [&](int min, int max, char after) {
              int value = 0;
              const auto [end, error] = std::from_chars(next, last, value);
              if (error != std::errc() || value < min || value > max ||
                  (end != last && (*end != after || end + 1 == last)))
                throw CLI::ValidationError("--case", fmt::format("is \"{}\", expected BATCHxCONTEXT, separated by "
                                                                 "commas: batches from 1 to 1024, contexts to {}",
                                                                 text, kMostContext));
              next = end == last ? last : end + 1;
              return value;
            };
            do {
              const int batch = number(1, 1024, 'x');
              options.cases.emplace_back(batch, number(0, kMostContext, ','));
            } while (next != last);
          },
          "Batch and context of each case, in place of all pairs of --batch and --context")
      ->type_name("BATCHxCONTEXT,...")
      ->excludes(command.get_option("--batch"), command.get_option("--context"));
}

void add_output_options(CLI::App& command, BenchOptions& options) {
  add_number_option<int>(command, "--repeats", options.repeats, "Samples of each case; default 10",
                         {.min = 1, .max = 10000});
  add_json_option(command, options.json_file);
}

void add_baseline_option(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--compare", options.baseline,
                  "A baseline to time interleaved with Heddle: llama.cpp on the CPU, torch on a GPU (bench/README.md)")
      ->type_name("NAME");
}

void add_contexts_option(CLI::App& command, BenchOptions& options) {
  add_numbers_option(command, "--context", options.contexts, "Tokens in the cache before, comma-separated; default 0",
                     {.min = 0, .max = kMostContext});
}

void add_page_size_option(CLI::App& command, BenchOptions& options) {
  add_number_option<int>(command, "--page-size", options.page_size,
                         "Tokens in a page of the cache; default: the engine's, 32 on the CPU and 64 on a GPU",
                         {.min = 1, .max = 4096});
}

void run(const std::string& kind, BenchResult (*benchmark)(const BenchOptions&), const BenchOptions& options) {
  if ((kind == "decode" || kind == "prefill") && followed(options.model)) return;
  RecordFile file(kind, options, options.json_file);
  file.write(benchmark(options));
}

CLI::App* add_benchmark(CLI::App& bench, const std::string& kind, const std::string& description,
                        BenchResult (*benchmark)(const BenchOptions&), const std::shared_ptr<BenchOptions>& options) {
  CLI::App* command = bench.add_subcommand(kind, description);
  add_output_options(*command, *options);
  command->callback([kind, benchmark, options, command] {
    options->model.given = given_options(*command);
    run(kind, benchmark, *options);
  });
  return command;
}

void add_decode(CLI::App& bench) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      add_benchmark(bench, "decode", "Decode: time per token, by batch and context", bench_decode, options);
  add_model_options(*command, options->model);
  add_tensor_parallel_options(*command, options->model);
  add_batches_option(*command, *options);
  add_contexts_option(*command, *options);
  add_cases_option(*command, *options);
  add_number_option<int>(*command, "--tokens", options->tokens, "Steps of a sample; default 16",
                         {.min = 1, .max = 4096});
  add_page_size_option(*command, *options);
  add_baseline_option(*command, *options);
}

void add_prefill(CLI::App& bench) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command = add_benchmark(bench, "prefill", "Prefill: time of prompts, by length", bench_prefill, options);
  add_model_options(*command, options->model);
  add_tensor_parallel_options(*command, options->model);
  add_batches_option(*command, *options);
  add_contexts_option(*command, *options);
  add_numbers_option(*command, "--tokens", options->prompts,
                     "Tokens of each sequence's prompt, comma-separated; default 512", {.min = 1, .max = kMostContext});
  add_number_option<int>(
      *command, "--step-tokens", options->step_tokens,
      "At most, in a step of all sequences; default: as the engine, 512 on the CPU and 4096 on a GPU",
      {.min = 1, .max = 1 << 17});
  add_page_size_option(*command, *options);
  add_baseline_option(*command, *options);
}

void add_operator_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command = add_benchmark(bench, "operator", "Each operator of a model's step alone, in the step's shapes",
                                    bench_operator, options);
  options->model.model = "llama-3-8b";
  command->add_option(
      "-m,--model,model", options->model.model,
      "Whose shapes: a NAME of synth:NAME, or a model's folder; default llama-3-8b; no weights are read");
  add_device_option(*command, options->model);
  command
      ->add_option("--operator", options->operators,
                   fmt::format("Which, comma-separated; default: all of {}", fmt::join(operator_names(), ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(operator_names()).description(""));
  command
      ->add_option_function<std::string>(
          "--dtype",
          [options](const std::string& name) {
            if (name != "auto") options->model.dtype = dtype_named(name);
          },
          "Dtype of the weights and the KV cache; auto: the real model's")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->default_str("auto");
  add_batches_option(*command, *options);
  add_contexts_option(*command, *options);
  add_cases_option(*command, *options);
  add_number_option<int>(*command, "--tokens", options->tokens, "New tokens of each sequence; default 1: a decode step",
                         {.min = 1, .max = 1 << 17});
  add_page_size_option(*command, *options);
  add_number_option<int>(*command, "--threads", options->model.threads, "Processor threads; default: all usable",
                         {.min = 1, .max = 1024});
  command
      ->add_option("--compare", options->baseline,
                   "A baseline to time each operator with, interleaved: torch (bench/README.md)")
      ->type_name("NAME");
}

void add_load(CLI::App& bench) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command = add_benchmark(bench, "load",
                                    "From opening a folder to the first token, files in the page cache; synth:NAME is "
                                    "written to one first",
                                    bench_load, options);
  add_model_options(*command, options->model);
  add_baseline_option(*command, *options);
}

void add_tokenize_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command = add_benchmark(bench, "tokenize", "Tokenizer: rates of encoding and decoding, one thread",
                                    bench_tokenize, options);
  add_model_option(*command, options->model.model,
                   "Folder with tokenizer.json, ORG/NAME in the cache of Hugging Face, or synth:NAME");
  command->add_option("--text", options->text_file, "The text; default: synthetic, of common English words")
      ->type_name("FILE");
}

void add_wafer_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<BenchOptions>();
  add_benchmark(bench, "wafer", "The wafer simulator's own speed, one thread", bench_wafer, options);
}

}  // namespace

void stop_if_interrupted(const InterruptGuard& guard) {
  if (guard.interrupted()) throw Interrupted{guard.signal()};
}

void add_bench(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure speed, compared with this machine's limits and with baselines");
  bench->require_subcommand(1);
  add_decode(*bench);
  add_prefill(*bench);
  add_operator_benchmark(*bench);
  add_load(*bench);
  add_tokenize_benchmark(*bench);
  add_wafer_benchmark(*bench);
  add_collective_benchmark(*bench);
  add_flag_benchmark(*bench);
  add_cluster_benchmark(*bench);
  add_block_benchmark(*bench);
  add_fused_linear_benchmarks(*bench);
  add_flash_decode_benchmark(*bench);
  add_sequence_attention_benchmark(*bench);
  add_serve_benchmark(*bench);
  add_throughput_benchmark(*bench);
  add_token_weave_benchmark(*bench);
}

}  // namespace heddle
