// heddle generate: prompts in, text or JSON out.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/completion_json.h"
#include "cli/interrupt.h"
#include "cli/jsonl.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/speed.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"
#include "machine/cpu.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "machine/measure.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  std::string prompts_file;
  bool from_file = false;
  SamplingOptions sampling;
  std::optional<int> num_top_logprobs;
  bool json = false;
  bool echo = false;
};

struct Prompt {
  std::string text;
  std::string where;  // begins messages about it
};

std::vector<Prompt> read_prompts(const GenerateOptions& options) {
  if (!options.from_file) return {{options.prompt, "--prompt"}};
  std::vector<Prompt> prompts;
  for (const JsonLine& line : read_jsonl(options.prompts_file))
    prompts.push_back({JsonField(line.object, line.where).at("prompt").text(), line.where});
  if (prompts.empty()) throw_error<InputError>("{}: holds no prompts", options.prompts_file);
  return prompts;
}

// A prompt and its answer.
struct Answer {
  PromptOfCompletion prompt;
  Completion completion;
};

// Writes answers to standard output in the order of the prompts: as JSON when each is complete, or as text while it
// grows.
class Printer {
 public:
  Printer(const GenerateOptions& options, const Tokenizer& tokenizer, const std::vector<Answer>& answers)
      : options_(options), tokenizer_(tokenizer), answers_(answers), held_text_(answers.size()) {
    if (!options_.json) begin_text();
  }

  // `text` was added to completion `index`.
  void add(std::size_t index, std::string_view text) {
    if (!options_.json) held_text_[index] += text;
  }

  // Writes everything final, in order.
  void flush() {
    std::string output;
    while (next_ < answers_.size()) {
      const bool finished = answers_[next_].completion.finished();
      if (options_.json && !finished) break;
      output += options_.json ? json(answers_[next_]) : std::exchange(held_text_[next_], {});
      if (!finished) break;
      ++next_;
      if (!options_.json) {
        output += "\n";
        write_stdout(std::exchange(output, {}));
        begin_text();
      }
    }
    if (!output.empty()) write_stdout(output);
  }

  // After an interruption, writes complete answers behind an incomplete one. Returns the number of incomplete answers.
  std::size_t finish_early() {
    std::size_t unfinished = 0;
    std::string output;
    if (!options_.json && next_ < answers_.size()) output += "\n";  // ends the growing text
    for (; next_ < answers_.size(); ++next_) {
      const Answer& answer = answers_[next_];
      if (!answer.completion.finished())
        ++unfinished;
      else if (options_.json)
        output += json(answer);
      else
        output += "\n" + (options_.echo ? answer.prompt.text : std::string()) + held_text_[next_] + "\n";
    }
    if (!output.empty()) write_stdout(output);
    return unfinished;
  }

 private:
  void begin_text() {
    if (next_ >= answers_.size()) return;
    if (next_ > 0) write_stdout("\n");
    if (options_.echo) write_stdout(answers_[next_].prompt.text);
  }

  std::string json(const Answer& answer) const { return completion_json(answer.prompt, answer.completion, tokenizer_); }

  const GenerateOptions& options_;
  Tokenizer tokenizer_;
  const std::vector<Answer>& answers_;
  std::vector<std::string> held_text_;
  std::size_t next_ = 0;  // the first incomplete answer
};

// Steps the engine until all requests are done, or the user interrupts.
void run(Engine& engine, const std::string& model, const std::unordered_map<std::int64_t, std::size_t>& index_of,
         std::vector<Answer>& answers, Printer& printer, SpeedMeter& meter, const InterruptGuard& interrupt) {
  while (!engine.idle() && !interrupt.interrupted()) {
    const auto start = SpeedMeter::Clock::now();
    const auto outputs = engine.step();
    for (const TokenOutput& output : outputs) {
      const std::size_t index = index_of.at(output.request);
      if (output.finish == FinishReason::error) fail_by_damaged_weights(model, output.error);
      Completion& completion = answers[index].completion;
      printer.add(index, completion.push(output));
      if (completion.finished() && !output.finish) engine.cancel(output.request);  // at a stop string
    }
    meter.add_step(engine.last_step(), start);
    printer.flush();
  }
}

// Compares a run's bandwidth with the GPU memory's data sheet.
std::string on_gpu_text(const SpeedMeter& meter, Device device) {
  const GpuDiscovery found = discover_gpus();
  const auto index = static_cast<std::size_t>(device.index);
  if (index >= found.gpus.size()) return fmt::format(" on {}", name_of(device));
  const GpuInfo& gpu = found.gpus[index];
  std::string text = fmt::format(" on {} ({})", name_of(device), gpu.name);
  if (meter.decode_gbps() > 0 && gpu.memory_bandwidth_gbps > 0)
    text += fmt::format(", {:.0f} % of its memory's {:.0f} GB/s", 100 * meter.decode_gbps() / gpu.memory_bandwidth_gbps,
                        gpu.memory_bandwidth_gbps);
  return text;
}

void report_speed(const SpeedMeter& meter, const SamplingParams& sampling, Device device, int threads) {
  std::string line = "heddle: " + meter.summary();
  if (device.kind == DeviceKind::cuda) {
    line += on_gpu_text(meter, device);
  } else if (meter.decode_gbps() > 0) {
    try {
      TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
      double bandwidth = memory_bandwidth_gbps(store, threads);
      // Higher than the memory's rate: a small model fits the caches, or the stored figure was measured under load.
      if (meter.decode_gbps() > bandwidth)
        bandwidth = std::max(bandwidth, remeasure_memory_bandwidth_gbps(store, threads));
      line += fmt::format(", {:.0f} % of the memory bandwidth ({:.1f} GB/s)", 100 * meter.decode_gbps() / bandwidth,
                          bandwidth);
    } catch (const Failure& failure) {  // too little memory to measure; the answer is valid
      line += fmt::format(" (memory bandwidth unknown: {})", failure.what());
    }
  }
  if (sampling.temperature > 0) line += fmt::format("; seed {}", sampling.seed);
  write_stderr(line + "\n");
}

struct EncodedPrompt {
  Prompt prompt;
  std::vector<std::int32_t> tokens;
};

// Runs `action`; its input errors begin with the position of the prompt.
template <class Action>
auto for_prompt(const Prompt& prompt, Action action) {
  try {
    return action();
  } catch (const InputError& error) {
    throw_error<InputError>("{}: {}", prompt.where, error.what());
  }
}

std::vector<EncodedPrompt> encode(const std::vector<Prompt>& prompts, const Tokenizer& tokenizer) {
  std::vector<EncodedPrompt> encoded;
  encoded.reserve(prompts.size());
  for (const Prompt& prompt : prompts)
    encoded.push_back({prompt, for_prompt(prompt, [&] { return tokenizer.encode(prompt.text); })});
  return encoded;
}

void generate(const GenerateOptions& options) {
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  const Tokenizer tokenizer = load_tokenizer(options.model.model);
  GenerationDefaults defaults;
  if (const auto config = source->generation_config()) defaults = read_generation_defaults(*config);
  const SamplingParams sampling = sampling_of(options.sampling, defaults);
  const std::vector<EncodedPrompt> prompts = encode(read_prompts(options), tokenizer);

  EngineOptions engine_options;
  std::unique_ptr<Model> model = load(*source, options.model, engine_options);
  Engine engine(std::move(model), engine_options);
  if (options.num_top_logprobs > engine.model_shape().vocab_size)
    throw_error<InputError>("--logprobs is {}, the model's vocabulary is {}", *options.num_top_logprobs,
                            engine.model_shape().vocab_size);

  std::vector<Answer> answers;
  std::unordered_map<std::int64_t, std::size_t> index_of;
  for (const EncodedPrompt& encoded : prompts) {
    const std::int64_t id = for_prompt(encoded.prompt, [&] {
      return engine.submit({.prompt = encoded.tokens,
                            .sampling = sampling,
                            .max_tokens = options.sampling.max_tokens,
                            .stop_ids = stop_ids_of(options.sampling, defaults, engine.model_shape()),
                            .num_top_logprobs = options.num_top_logprobs,
                            .logit_bias = options.sampling.logit_bias});
    });
    index_of.emplace(id, answers.size());
    answers.push_back({.prompt = {encoded.prompt.text, std::ssize(encoded.tokens), options.echo},
                       .completion = Completion(tokenizer, options.sampling.stop)});
  }

  const InterruptGuard interrupt;
  Printer printer(options, tokenizer, answers);
  SpeedMeter meter;
  run(engine, options.model.model, index_of, answers, printer, meter, interrupt);
  if (interrupt.interrupted())
    write_stderr(fmt::format("heddle: interrupted; {} of {} prompts were not finished\n", printer.finish_early(),
                             prompts.size()));
  report_speed(meter, sampling, engine.device(), std::min(engine_options.threads, discover_cpu().usable_threads));
  if (interrupt.interrupted()) throw Interrupted{interrupt.signal()};
}

}  // namespace

void add_generate(CLI::App& app) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue prompts with a model");
  add_model_options(*command, options->model);
  add_limit_options(*command, options->model, Sequences::many);
  auto* prompt = command->add_option("-p,--prompt", options->prompt, "The prompt; special tokens in it are parsed");
  auto* file = command->add_option("--prompts-file", options->prompts_file,
                                   "Prompts, one {\"prompt\": ...} a line; - is standard input");
  prompt->excludes(file);
  add_sampling_options(*command, options->sampling);
  auto* logprobs =
      add_number_option<int>(*command, "--logprobs", options->num_top_logprobs,
                             "With --json: log-probabilities, and those of the N likeliest tokens", {.min = 0});
  command->add_flag("--verbose", options->model.verbose,
                    "Say on standard error where the model runs, why there, and what memory it takes");
  logprobs->needs(command->add_flag("--json", options->json, "One JSON object a prompt"));
  command->add_flag("--echo", options->echo, "Print the prompt before its text; in JSON \"text\" begins with it");
  command->callback([options, prompt, file] {
    if (prompt->count() + file->count() == 0) throw CLI::RequiredError("--prompt or --prompts-file");
    options->from_file = file->count() > 0;
    generate(*options);
  });
}

}  // namespace heddle
