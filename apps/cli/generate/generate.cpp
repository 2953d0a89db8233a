// heddle generate: prompts in, text or JSON out.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/generate/batch.h"
#include "cli/generate/encoder.h"
#include "cli/generate/grammar_options.h"
#include "cli/generate/memory_share.h"
#include "cli/generate/printer.h"
#include "cli/generate/progress.h"
#include "cli/generate/prompt.h"
#include "cli/interrupt.h"
#include "cli/launched.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/speed.h"
#include "cli/template_options.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"
#include "machine/cpu.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::optional<std::string> prompt;
  std::optional<std::string> prompts_file;
  SamplingOptions sampling;
  int num_samples = 1;
  TemplateOptions chat_template;
  std::optional<int> num_top_logprobs;
  GrammarOptions grammar;
  bool json = false;
  bool echo = false;
  bool as_finished = false;
};

// Without --prompt and --prompts-file, what is piped in is the prompt.
Prompt single_prompt(const GenerateOptions& options, const GenerationSettings& settings) {
  if (options.prompt && *options.prompt != "-")
    return {.where = "--prompt", .text = *options.prompt, .settings = settings};
  constexpr const char* kMissing = "--prompt, --prompts-file or a prompt on standard input";
  if (!options.prompt && ::isatty(STDIN_FILENO) == 1) throw CLI::RequiredError(kMissing);
  std::string text = read_prompt_text();
  if (!options.prompt && text.empty()) throw CLI::RequiredError(kMissing);
  return {.where = "standard input", .text = std::move(text), .settings = settings};
}

// A line that asks for what is written in JSON alone fails.
std::vector<Prompt> checked(const GenerateOptions& options, std::vector<Prompt> prompts) {
  for (Prompt& prompt : prompts)
    if (prompt.error.empty() && prompt.settings.num_top_logprobs && !options.json)
      prompt.error = fmt::format("{}: logprobs: they are written with --json only", prompt.where);
  return prompts;
}

bool samples(const Prompt& prompt) {
  return prompt.settings.sampling.temperature > 0;
}

void warn_of_greedy(const GenerateOptions& options, const std::vector<Prompt>& prompts) {
  if (std::ranges::any_of(prompts, samples)) return;
  warn_of_unused(options.sampling);
  if (std::ranges::any_of(prompts, [](const Prompt& prompt) { return prompt.settings.num_samples > 1; }))
    log_warning("at temperature 0 all samples of a prompt are the same: give a --temperature");
}

bool draws_of_run(const Prompt& prompt) {
  return samples(prompt) && !prompt.settings.own_seed;
}

// Runs until all is done, or the user interrupts. `more` gives prompts that have come since, waiting as long as it is
// told for any; nothing when there will be no others.
using MorePrompts = std::function<std::optional<std::vector<Prompt>>(std::chrono::milliseconds)>;
void run(Batch& batch, const MorePrompts& more, const Engine& engine, const Printer& printer, RunProgress& progress,
         SpeedMeter& speed, const InterruptGuard& interrupt) {
  constexpr std::chrono::milliseconds kWhileIdle{100};  // after which an interrupt is seen at the latest
  bool all_came = false;
  while (!interrupt.interrupted()) {
    if (!all_came && batch.takes_more()) {
      std::optional<std::vector<Prompt>> others = more(batch.done() ? kWhileIdle : std::chrono::milliseconds(0));
      all_came = !others;
      for (Prompt& prompt : others.value_or(std::vector<Prompt>())) batch.add(std::move(prompt));
    }
    if (batch.done() && all_came) return;
    if (batch.done()) continue;
    const auto start = SpeedMeter::Clock::now();
    batch.submit();
    if (speed.num_prompt_tokens() == 0) progress.begin(batch, engine.model_shape());
    batch.step();
    speed.add_step(engine.last_step(), start);
    if (!printer.in_text_on_terminal()) progress.update(batch, speed);
  }
}

std::string interrupted_text(const Batch& batch) {
  if (batch.num_answers() == 1) return "heddle: interrupted\n";
  return fmt::format("heddle: interrupted; {} of {} answers were not finished\n",
                     batch.num_answers() - batch.num_printed(), batch.num_answers());
}

// "...; seed 7": the run's seed, if an answer depends on it.
void report(const SpeedMeter& speed, const std::string& share, std::optional<std::uint64_t> seed) {
  std::string line = "heddle: " + speed.summary();
  if (!share.empty()) line += "; " + share;
  if (seed) line += fmt::format("; seed {}", *seed);
  write_stderr(line + "\n");
}

// Throws if prompts have failed.
void require_success(const Printer& printer, std::int64_t num_answers) {
  if (printer.num_failed() == 0) return;
  if (num_answers == 1 && !printer.writes_errors()) throw InputError(printer.first_error());
  const std::string first = printer.writes_errors() ? "" : "; the first: " + printer.first_error();
  throw_error<InputError>("{} of {} answers failed{}", printer.num_failed(), num_answers, first);
}

// Where no line is right, the model need not be loaded.
void require_a_right_prompt(const std::vector<Prompt>& prompts, Printer& printer) {
  if (std::ranges::any_of(prompts, [](const Prompt& prompt) { return prompt.error.empty(); })) return;
  for (const Prompt& prompt : prompts)
    printer.print({.to = std::make_shared<EncodedPrompt>(EncodedPrompt{.prompt = prompt}), .error = prompt.error});
  require_success(printer, std::ssize(prompts));
}

// Templates render conversations, and a prompt is taken as it is: options for them would be ignored.
void require_conversations(const GenerateOptions& options, const std::vector<Prompt>& prompts) {
  const char* const option = options.chat_template.file                   ? "--chat-template"
                             : !options.chat_template.assignments.empty() ? "--set"
                                                                          : nullptr;
  const auto is_conversation = [](const Prompt& prompt) { return prompt.conversation || !prompt.error.empty(); };
  if (option == nullptr || std::ranges::any_of(prompts, is_conversation)) return;
  throw_error<InputError>(
      "{} is for \"messages\" of a prompts file, which the template renders; --prompt and \"prompt\" are taken as they "
      "are. "
      "heddle template prints what a template makes",
      option);
}

void generate(const GenerateOptions& options) {
  if (followed(options.model)) return;
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  PromptEncoder encoder(load_tokenizer(options.model.model), options.model.model, options.chat_template);
  GenerationDefaults defaults;
  if (const auto config = source->generation_config()) defaults = read_generation_defaults(*config);
  const GenerationSettings settings{.sampling = merged_sampling(options.sampling, defaults),
                                    .max_tokens = options.sampling.max_tokens,
                                    .num_samples = options.num_samples,
                                    .stop = options.sampling.stop,
                                    .stop_ids = options.sampling.stop_ids,
                                    .ignore_eos = options.sampling.ignore_eos,
                                    .num_top_logprobs = options.num_top_logprobs,
                                    .logit_bias = options.sampling.logit_bias,
                                    .grammar = grammar_of(options.grammar)};
  std::optional<PromptReader> reader;
  if (options.prompts_file) reader.emplace(*options.prompts_file, settings);
  std::vector<Prompt> prompts =
      reader ? checked(options, reader->first()) : std::vector{single_prompt(options, settings)};
  const bool know_all = !reader || reader->ended();  // else these are the first of a stream
  if (know_all) {
    warn_of_greedy(options, prompts);
    require_conversations(options, prompts);
  }
  bool seeded = std::ranges::any_of(prompts, draws_of_run);

  RunProgress progress(prompts.front().settings.max_tokens, shown_unless(options.model.quiet || !know_all));
  Printer printer({.json = options.json,
                   .echo = options.echo,
                   .from_file = options.prompts_file.has_value(),
                   .titles = !know_all || prompts.size() > 1 || prompts.front().settings.num_samples > 1},
                  encoder.tokenizer(), [&] { progress.hide(); });
  if (know_all) require_a_right_prompt(prompts, printer);

  EngineOptions engine_options;
  RankModels ranks = load(*source, options.model, engine_options);
  Engine engine(std::move(ranks), engine_options);
  const ModelShape& shape = engine.model_shape();
  if (options.num_top_logprobs > shape.vocab_size)
    throw_error<InputError>("--logprobs is {}, the model's vocabulary is {}", *options.num_top_logprobs,
                            shape.vocab_size);

  check_stop_ids(options.sampling.stop_ids, shape, "--stop-ids");
  check_biased_ids(options.sampling.logit_bias, shape, "--logit-bias");

  const InterruptGuard interrupt;
  Batch batch(engine, encoder, printer, std::move(prompts),
              {.eos_ids = eos_ids_of(defaults, shape),
               .explain = [&](const std::string& error) { return explain_bad_logits(options.model.model, error); },
               .max_waiting = 2 * engine_options.max_sequences,
               .as_finished = options.as_finished});
  SpeedMeter speed;
  try {
    const auto more = [&](std::chrono::milliseconds timeout) -> std::optional<std::vector<Prompt>> {
      if (!reader || reader->ended()) return std::nullopt;
      std::vector<Prompt> others = checked(options, reader->more(timeout));
      seeded = seeded || std::ranges::any_of(others, draws_of_run);
      return others;
    };
    run(batch, more, engine, printer, progress, speed, interrupt);
  } catch (...) {
    batch.print_rest();
    throw;
  }
  progress.hide();
  batch.print_rest();
  report_parts(engine, options.model);
  if (interrupt.interrupted()) write_stderr(interrupted_text(batch));
  if (!options.model.quiet && speed.num_prompt_tokens() > 0) {
    const int threads = std::min(engine_options.threads, discover_cpu().usable_threads);
    report(speed, memory_share(speed, shape, engine.device(), threads),
           seeded ? std::optional(settings.sampling.seed) : std::nullopt);
  }
  if (interrupt.interrupted()) throw Interrupted{interrupt.signal()};
  require_success(printer, batch.num_answers());
}

}  // namespace

void add_generate(CLI::App& app) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue prompts with a model");
  add_model_options(*command, options->model);
  add_tensor_parallel_options(*command, options->model);
  add_limit_options(*command, options->model, Sequences::many);
  auto* prompt = command->add_option("-p,--prompt", options->prompt,
                                     "The prompt; special tokens in it are parsed. -, or nothing where text is piped "
                                     "in: standard input, without its last line end");
  auto* file = command->add_option("--prompts-file", options->prompts_file,
                                   "Prompts, one JSON object per line (see below); - is standard input. The lines of "
                                   "a pipe or FIFO are answered as they come");
  prompt->excludes(file);
  add_sampling_options(*command, options->sampling);
  add_number_option<int>(*command, "-n", options->num_samples, "Samples of each prompt", {.min = 1, .max = kMaxSamples})
      ->default_str("1");
  add_grammar_options(*command, options->grammar);
  add_template_options(*command, options->chat_template);
  auto* logprobs =
      add_number_option<int>(*command, "--logprobs", options->num_top_logprobs,
                             "With --json: log-probabilities, and those of the N likeliest tokens", {.min = 0});
  auto* verbose = command->add_flag("--verbose", options->model.verbose,
                                    "Say on standard error where the model runs, why there, and what memory it takes");
  verbose->excludes(command->add_flag("--quiet", options->model.quiet, "No progress, and no speed at the end"));
  logprobs->needs(command->add_flag("--json", options->json, "One JSON object per answer"));
  command->add_flag("--echo", options->echo, "Print the prompt before its text; in JSON \"text\" begins with it");
  command->add_flag("--as-finished", options->as_finished,
                    "Print answers as soon as they have ended, not in order of the prompts");
  command->footer(
      "A line of a prompts file is a JSON object with \"prompt\", or with \"messages\" and, if need be, \"tools\",\n"
      "\"documents\" and \"chat_template_kwargs\", which the model's chat template renders. It may have an \"id\",\n"
      "which its answer repeats, and settings that replace those of the command line: max_tokens, n, seed, stop,\n"
      "stop_ids, ignore_eos, logit_bias ({\"ID\": BIAS}), temperature, top_k, top_p, min_p, repetition_penalty,\n"
      "presence_penalty, frequency_penalty, logprobs, json_object, json_schema (a schema, not a file), regex, choice\n"
      "(a list). Any other field is an error. A line with an error fails\n"
      "alone: its answer says why, and the exit status is 2.\n"
      "Lines, and samples of a line, draw independent random numbers: they depend on --seed, the line's number and\n"
      "the sample's. A line with a seed of its own draws what --prompt draws with that --seed.");
  command->callback([options, command] {
    options->model.given = given_options(*command);
    generate(*options);
  });
}

}  // namespace heddle
