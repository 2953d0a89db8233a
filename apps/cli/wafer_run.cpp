// heddle wafer run: a model's text, computed on a simulated wafer.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/printable.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/interrupt.h"
#include "cli/kv_heat_map.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/wafer.h"
#include "cli/wafer_check.h"
#include "cli/wafer_report.h"
#include "engine/generation_defaults.h"
#include "engine/text_stream.h"
#include "models/registry.h"
#include "models/wafer_llama.h"
#include "plans/wafer/prefill.h"
#include "topology/cpu.h"
#include "topology/wafer_predict.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct RunOptions {
  WaferOutput output;
  std::string model;
  int threads = 0;  // 0: all that are usable
  std::optional<WaferMesh> mesh;
  std::string prompt;
  std::int64_t max_tokens = 256;
  KvMethod kv_method = KvMethod::shift;
  std::string heat_map;
  bool check = false;
};

// What a token, or the prompt, would have taken on the device.
struct Cycles {
  const PlmrDevice& device;
  const WaferModel& model;
  WaferMesh mesh;

  WaferPrediction prefill(std::int64_t tokens) const {
    return predict_wafer(device, model, {.phase = WaferPhase::prefill, .prefill_mesh = mesh, .context = tokens});
  }
  // Of the token after `context` others.
  WaferPrediction decode(std::int64_t context) const {
    return predict_wafer(device, model, {.phase = WaferPhase::decode, .decode_mesh = mesh, .context = context});
  }
};

// Values are kept as float32 whatever the device would store, and a layer's weights lie there a second time in prefill.
void check_host_memory(const WaferModel& model, WaferMesh mesh) {
  const std::int64_t available = discover_cpu().available_memory_bytes;
  const double needed = wafer_decode_bytes(model, mesh);
  if (available > 0 && needed > static_cast<double>(available))
    throw_error<Failure>(
        "simulating {} layers on {} cores takes {} of memory, {} available; take fewer layers (synth:NAME,layers=N)",
        model.num_layers, text_of(mesh), size_text(static_cast<std::uint64_t>(needed)),
        size_text(static_cast<std::uint64_t>(available)));
}

std::int32_t likeliest(const std::vector<float>& logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(*best)) throw Failure("the model's logits are not numbers; are the weights whole?");
  return static_cast<std::int32_t>(best - logits.begin());
}

struct Generated {
  std::int32_t token;
  std::string text;  // that became certain with it
  double cycles;     // until its logits were there
};

struct Run {
  std::int64_t prompt_tokens = 0;
  WaferPrediction prefill;
  std::vector<Generated> tokens;
  std::string finish = "length";
  KvHistory history;
  std::vector<std::vector<float>> logits;  // that each token was chosen by; where they are to be checked
  std::optional<LogitsDifference> difference;
};

void print_token(const RunOptions& options, const Run& run) {
  if (options.output.json) return;
  const Generated& last = run.tokens.back();
  write_stdout(fmt::format("{:>8} {:>8} {:>14.0f} cycles  \"{}\"\n", run.prompt_tokens + std::ssize(run.tokens) - 1,
                           last.token, last.cycles, printable(last.text, 200)));
}

ordered_json json_of(const Run& run, const PlmrDevice& device, WaferMesh mesh, const KvCapacity& kv,
                     const std::string& model, const KvRows& rows) {
  ordered_json tokens = ordered_json::array(), cycles = ordered_json::array();
  std::string text;
  double decode_cycles = 0;
  for (std::size_t i = 0; i < run.tokens.size(); ++i) {
    tokens.push_back(run.tokens[i].token);
    cycles.push_back(run.tokens[i].cycles);
    if (i > 0) decode_cycles += run.tokens[i].cycles;  // the first token comes of the prompt
    text += run.tokens[i].text;
  }
  ordered_json object{{"model", model},
                      {"device", device.name},
                      {"mesh", json_of(mesh)},
                      {"prompt_tokens", run.prompt_tokens},
                      {"text", text},
                      {"tokens", tokens},
                      {"finish_reason", run.finish},
                      {"prefill", json_of(device, run.prefill.cost)},
                      {"token_cycles", cycles},
                      {"decode_cycles", decode_cycles},
                      {"regions", kv.regions},
                      {"kv_capacity_tokens", rows.method() == KvMethod::shift ? kv.shift_tokens : kv.concat_tokens},
                      {"kv_tokens_fullest_row", rows.fullest()}};
  if (run.difference)
    object["check"] = {{"largest_difference", run.difference->largest},
                       {"largest_logit", run.difference->largest_logit},
                       {"rows", run.difference->rows},
                       {"same_token", run.difference->same_token}};
  return object;
}

std::string summary_of(const Run& run, const PlmrDevice& device, WaferMesh mesh, const KvCapacity& kv,
                       const KvRows& rows) {
  double cycles = 0;
  std::string text;
  for (std::size_t i = 0; i < run.tokens.size(); ++i) {
    if (i > 0) cycles += run.tokens[i].cycles;
    text += run.tokens[i].text;
  }
  std::string lines = line_text("text", printable(text, std::size_t{1} << 20));
  lines +=
      line_text("prefill", fmt::format("{} tokens, {:.0f} cycles, {:.4g} us", run.prompt_tokens,
                                       run.prefill.cost.cycles(), device.seconds(run.prefill.cost.cycles()) * 1e6));
  if (cycles > 0)
    lines += line_text("decode", fmt::format("{} tokens, {:.0f} cycles, {:.4g} us, {:.0f} tokens a second",
                                             run.tokens.size() - 1, cycles, device.seconds(cycles) * 1e6,
                                             static_cast<double>(run.tokens.size() - 1) / device.seconds(cycles)));
  lines += line_text("KV cache",
                     fmt::format("{} tokens, {} in the fullest of {} rows; {} fit", rows.size(), rows.fullest(),
                                 rows.rows(), rows.method() == KvMethod::shift ? kv.shift_tokens : kv.concat_tokens));
  if (run.difference)
    lines +=
        line_text("against the CPU", fmt::format("logits differ by {:.2g} at most, the largest is {:.4g}; {} of {} "
                                                 "tokens are the same",
                                                 run.difference->largest, run.difference->largest_logit,
                                                 run.difference->same_token, run.difference->rows));
  lines += line_text("regions", fmt::format("{} of {} on {}", kv.regions, text_of(mesh), device.name));
  return lines;
}

void generate(const RunOptions& options, WaferLlama& model, const Cycles& cycles, const Tokenizer& tokenizer,
              const std::vector<std::int32_t>& prompt, std::span<const std::int32_t> stop_ids,
              const InterruptGuard& interrupt, Run& run) {
  TextStream text(tokenizer, {});
  double taken = run.prefill.cost.cycles();
  std::vector<float> logits = model.prefill(prompt);
  run.history.record(model.rows());
  while (!interrupt.interrupted()) {
    const std::int32_t token = likeliest(logits);
    if (options.check) run.logits.push_back(logits);
    const bool stops = std::ranges::find(stop_ids, token) != stop_ids.end();
    const bool last = stops || std::ssize(run.tokens) + 1 == options.max_tokens;
    run.tokens.push_back({.token = token, .text = text.push(token), .cycles = taken});
    if (last) run.tokens.back().text += text.finish();
    print_token(options, run);
    if (stops) run.finish = "stop";
    if (last) return;
    taken = cycles.decode(model.rows().size()).cost.cycles();
    logits = model.decode(token);
    run.history.record(model.rows());
  }
  run.finish = "interrupted";
}

void run_on_wafer(const RunOptions& options) {
  const std::unique_ptr<ModelSource> source = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(options.model);
  const PlmrDevice device = open_plmr_device(options.output.device);
  const WaferMesh mesh = *options.mesh;
  const WaferModel shape = wafer_shape(*source);
  const std::vector<std::int32_t> prompt = tokenizer.encode(options.prompt);
  if (prompt.empty()) throw_error<InputError>("--prompt: it has no tokens");

  // What can be refused before the weights are read; a KV cache that is concatenated is full when it is.
  const KvCapacity kv = kv_capacity(device, shape, mesh);
  const Cycles cycles{device, shape, mesh};
  Run run{
      .prompt_tokens = std::ssize(prompt), .prefill = cycles.prefill(std::ssize(prompt)), .tokens = {}, .history = {}};
  const std::int64_t last_context = std::ssize(prompt) + options.max_tokens - 1;
  const std::int64_t max_context = describe_model(source->config()).context.value_or(last_context);
  if (last_context > max_context)
    throw_error<InputError>("--prompt has {} tokens and --max-tokens is {}; the model's context is {}", prompt.size(),
                            options.max_tokens, max_context);
  if (options.kv_method == KvMethod::shift && last_context > kv.shift_tokens)
    throw_error<InputError>("--prompt has {} tokens and --max-tokens is {}; the KV cache on {} cores of {} holds {}",
                            prompt.size(), options.max_tokens, text_of(mesh), device.name, kv.shift_tokens);
  cycles.decode(last_context);
  check_prefill_mesh(mesh);
  check_host_memory(shape, mesh);
  std::optional<PendingFile> heat_map;
  if (!options.heat_map.empty()) heat_map.emplace(options.heat_map);

  GenerationDefaults defaults;
  if (const auto config = source->generation_config()) defaults = read_generation_defaults(*config);
  const int threads = options.threads > 0 ? options.threads : discover_cpu().usable_threads;
  ThreadPool pool(threads);
  const InterruptGuard interrupt;
  KvRows rows(mesh.height, options.kv_method);
  {  // the wafer's weights make room for the CPU's
    Progress progress("loading", source->total_bytes());
    WaferLlama model(*source,
                     {.cores = mesh,
                      .decode = {.kv_method = options.kv_method,
                                 .kv_limits = {.tokens = kv.shift_tokens,
                                               .tokens_in_row = options.kv_method == KvMethod::concat
                                                                    ? std::optional(kv.concat_tokens)
                                                                    : std::nullopt},
                                 .work = {}},
                      .load = {.dtype = std::nullopt, .on_progress = [&](std::size_t done) { progress.update(done); }}},
                     pool);
    generate(options, model, cycles, tokenizer, prompt,
             defaults.eos_ids.empty() ? model.eos_ids() : std::span<const std::int32_t>(defaults.eos_ids), interrupt,
             run);
    rows = model.rows();
  }
  if (options.check && !interrupt.interrupted()) {
    std::vector<std::int32_t> tokens = prompt;
    for (const Generated& generated : run.tokens) tokens.push_back(generated.token);
    tokens.pop_back();  // nothing was computed after it
    run.difference = compare_with_cpu(*source, tokens, std::ssize(prompt) - 1, run.logits, threads);
  }

  write_wafer_result(options.output.json, json_of(run, device, mesh, kv, options.model, rows),
                     summary_of(run, device, mesh, kv, rows));
  if (heat_map) write_kv_heat_map(*heat_map, run.history, options.kv_method == KvMethod::concat ? kv.concat_tokens : 0);
  if (interrupt.interrupted()) throw Interrupted{interrupt.signal()};
}

}  // namespace

void add_wafer_run(CLI::App& wafer) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      wafer.add_subcommand("run", "A model's text, computed core by core, with the cycles it would take");
  command->add_option("--model", options->model, "Folder of the model (Hugging Face layout), or synth:NAME")
      ->required();
  add_mesh_option(*command, "--mesh", options->mesh, "The cores that compute: of prefill and of decode");
  command->get_option("--mesh")->required();
  command->add_option("--prompt", options->prompt, "The prompt; special tokens in it are parsed")->required();
  add_number_option<std::int64_t>(*command, "--max-tokens", options->max_tokens,
                                  "Tokens to make, the likeliest each time; default 256", {.min = 1, .max = 1 << 20});
  command
      ->add_option_function<std::string>(
          "--kv",
          [options](const std::string& name) {
            options->kv_method = name == "concat" ? KvMethod::concat : KvMethod::shift;
          },
          "How the KV cache grows: shift keeps rows of cores balanced, concat fills the last one")
      ->check(CLI::IsMember({"shift", "concat"}))
      ->default_str("shift");
  command->add_option("--heatmap", options->heat_map, "A PNG of how full each row's KV cache is over the generation")
      ->type_name("FILE");
  command->add_flag("--check", options->check, "Compare the logits with those of the CPU, in float32, afterwards");
  add_number_option<int>(*command, "--threads", options->threads, "Processor threads; default: all usable",
                         {.min = 1, .max = 1024});
  add_wafer_output_options(*command, options->output);
  command->callback([options] { run_on_wafer(*options); });
}

}  // namespace heddle
