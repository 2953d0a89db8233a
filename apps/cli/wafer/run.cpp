// heddle wafer run: generates text with a model on a simulated wafer.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "base/printable.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/wafer/check.h"
#include "cli/wafer/kv_heat_map.h"
#include "cli/wafer/report.h"
#include "cli/wafer/wafer.h"
#include "engine/generation_defaults.h"
#include "engine/text_stream.h"
#include "machine/cpu.h"
#include "models/registry.h"
#include "wafer/cost/wafer_predict.h"
#include "wafer/programs/memory.h"
#include "wafer/programs/prefill.h"
#include "wafer/programs/wafer_llama.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct RunOptions {
  WaferOutput output;
  std::string model;
  int threads = 0;                                           // 0: all usable
  std::optional<WaferMesh> mesh, prefill_mesh, decode_mesh;  // mesh: for those that are not given
  AllReduceOptions all_reduce;
  std::string prompt;
  std::int64_t max_tokens = 256;
  KvMethod kv_method = KvMethod::shift;
  std::string heat_map;
  bool check = false;
  int regions = 0;  // 0: the least number that holds the layers
};

// Where prefill and decode run. With one mesh for both, both have the same regions.
struct WaferLayout {
  WaferMesh prefill_mesh, decode_mesh;
  WaferFit prefill, decode;
};

// Throws InputError where it does not fit.
WaferLayout layout_of(const RunOptions& options, const PlmrDevice& device, const WaferModel& model, std::int64_t prompt,
                      std::int64_t in_row) {
  const WaferMesh prefill = options.prefill_mesh ? *options.prefill_mesh : *options.mesh;
  const WaferMesh decode = options.decode_mesh ? *options.decode_mesh : *options.mesh;
  if (prefill.width == decode.width && prefill.height == decode.height) {
    const WaferFit both = fit_wafer_regions(device, model, decode, prompt, in_row, options.regions);
    return {prefill, decode, both, both};
  }
  return {prefill, decode, fit_wafer_regions(device, model, prefill, prompt, 0, options.regions),
          fit_wafer_regions(device, model, decode, 0, in_row, options.regions)};
}

// The analytical model's predictions for the prompt and for a token.
struct AnalyticalModel {
  const PlmrDevice& device;
  const WaferModel& model;
  const WaferLayout& layout;
  const AllReduceOptions& all_reduce;  // the run's, and with it how steps begin

  WaferPrediction prefill(std::int64_t tokens) const {
    return predict_wafer(device, model,
                         {.phase = WaferPhase::prefill,
                          .prefill_mesh = layout.prefill_mesh,
                          .context = tokens,
                          .all_reduce = all_reduce});
  }
  // For the token after `context` others.
  WaferPrediction decode(std::int64_t context) const {
    return predict_wafer(
        device, model,
        {.phase = WaferPhase::decode, .decode_mesh = layout.decode_mesh, .context = context, .all_reduce = all_reduce});
  }
};

// Values are float32 on the host, whatever the device would store; in prefill a layer's weights are there twice.
void check_host_memory(const WaferModel& model, WaferMesh mesh) {
  const std::int64_t available = discover_cpu().available_memory_bytes;
  const double needed = wafer_decode_bytes(model, mesh);
  if (available > 0 && needed > static_cast<double>(available))
    throw_error<Failure>(
        "simulating {} layers on {} cores takes {} of memory, {} available; take fewer layers (synth:NAME,layers=N)",
        model.num_layers, text_of(mesh), size_text(static_cast<std::uint64_t>(needed)),
        size_text(static_cast<std::uint64_t>(available)));
}

// Prefill has as many places as the least common multiple of the sides (5.4); a square of fewer cores may be faster.
void warn_of_places(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens) {
  if (mesh.width == mesh.height) return;
  const int shorter = std::min(mesh.width, mesh.height);
  const auto cycles = [&](WaferMesh m) {
    double sum = 0;
    for (const LayerGemm& product : prefill_gemms(model, tokens))
      sum += product.count * gemm_cost(device, product.size, m, product.method).cycles();
    return sum;
  };
  try {
    const double times = cycles(mesh) / cycles({shorter, shorter});
    const int side = std::lcm(mesh.width, mesh.height);
    if (times > 1)
      write_stderr(fmt::format(
          "heddle: warning: prefill on {} takes {} x {} places, {} a core, and its GEMMs {:.3g} times as long as on "
          "{}\n",
          text_of(mesh), side, side, side / mesh.width * (side / mesh.height), times, text_of({shorter, shorter})));
  } catch (const InputError&) {  // one of the meshes is too small
  }
}

std::int32_t chosen_by(const WaferLlama& model) {
  if (model.chosen() < 0) throw Failure("the model's logits are not numbers; are the weights whole?");
  return model.chosen();
}

struct Generated {
  std::int32_t token;
  std::string text;  // that became final with the token
  double cycles;     // of the operations that computed its logits
  double predicted;  // by the analytical model
};

struct Run {
  std::int64_t prompt_tokens = 0;
  WaferCost prefill;       // of the executed operations
  WaferCost closed;        // the same, by the analytical model
  WaferCost decode;        // of the last token
  WaferCost closed_token;  // the same, by the analytical model
  double idle_share = 0;   // of the last token
  std::vector<Generated> tokens;
  std::string finish = "length";
  double idle_core_bytes = 0;  // of the fullest idle core, where the prompt's keys and values were spilled
  KvHistory history;
  std::vector<std::vector<float>> logits;  // that each token was chosen from; only if they are checked
  std::optional<LogitsDifference> difference;
};

void print_token(const RunOptions& options, const Run& run) {
  if (options.output.json) return;
  const Generated& last = run.tokens.back();
  write_stdout(fmt::format("{:>8} {:>8} {:>14.0f} cycles  \"{}\"\n", run.prompt_tokens + std::ssize(run.tokens) - 1,
                           last.token, last.cycles, printable(last.text, 200)));
}

std::string tokens_text(std::int64_t count) {
  return fmt::format("{} token{}", count, count == 1 ? "" : "s");
}

struct Totals {
  double cycles = 0, predicted = 0;
};

// The first token comes from the prompt.
Totals decode_totals(const Run& run) {
  Totals totals;
  for (std::size_t i = 1; i < run.tokens.size(); ++i) {
    totals.cycles += run.tokens[i].cycles;
    totals.predicted += run.tokens[i].predicted;
  }
  return totals;
}

std::int64_t capacity_of(const WaferFit& fit, const KvRows& rows) {
  return rows.method() == KvMethod::shift ? fit.row_tokens * rows.rows() : fit.row_tokens;
}

constexpr const char* kBasisLegend =
    "simulated: hops and words of what ran on the cores; counted: hops and words that stand for what runs beside them, "
    "or of a transition too large to play; analytical: what operations, calls, stages and values add, their number "
    "times fitted costs; fitted: explained by nothing that ran";

// Cycles by basis: "72.0 % simulated, 28.0 % fitted".
std::string shares_text(const WaferCost& cost) {
  std::vector<std::string> shares;
  for (const Basis basis : kCycleBases)
    if (const double cycles = cost.cycles(basis); cycles > 0)
      shares.push_back(fmt::format("{:.1f} % {}", 100 * cycles / cost.cycles(), text_of(basis)));
  return fmt::format("{}", fmt::join(shares, ", "));
}

// With a key of its own for what was not fitted.
ordered_json ran_json(const PlmrDevice& device, const WaferCost& cost) {
  ordered_json object = json_of(device, cost);
  object["hops_and_words_cycles"] = cost.hops_and_words();
  return object;
}

ordered_json ran_basis_json(const WaferCost& cost) {
  ordered_json object = basis_json(cost);
  object["hops_and_words_cycles"] = hops_and_words_basis(cost);
  return object;
}

bool has_decoded(const Run& run) {
  return !run.decode.breakdown.empty();
}

// Of each field of a run's JSON, in its shape.
ordered_json basis_json(const Run& run) {
  const std::string ran = text_of(Basis::simulated), counted = text_of(Basis::counted);
  ordered_json basis{
      {"text", ran},
      {"tokens", ran},
      {"prefill", ran_basis_json(run.prefill)},
      {"token_cycles", text_of(run.prefill.bases() | run.decode.bases())},
      {"analytical",
       {{"prefill_cycles", text_of(run.closed.bases())}, {"prefill_breakdown", basis_json(run.closed)["breakdown"]}}},
      {"prefill_regions", counted},
      {"regions", counted},
      {"spill", counted},
      {"kv_capacity_tokens", counted},
      {"kv_tokens_fullest_row", ran},
      {"check", ran}};
  if (has_decoded(run)) {
    basis["decode_cycles"] = basis["idle_share"] = text_of(run.decode.bases());
    basis["last_token"] = ran_basis_json(run.decode);
    basis["analytical"]["decode_cycles"] = text_of(run.closed_token.bases());
    basis["analytical"]["last_token_breakdown"] = basis_json(run.closed_token)["breakdown"];
  }
  return basis;
}

ordered_json json_of(const PlmrDevice& device, const WaferLayout& layout, double idle_core_bytes) {
  ordered_json object{{"prefill_mesh", json_of(layout.prefill_mesh)},
                      {"decode_mesh", json_of(layout.decode_mesh)},
                      {"prefill_regions", layout.prefill.regions},
                      {"regions", layout.decode.regions},
                      {"prompt_kv", layout.prefill.spill ? "on idle cores below the mesh" : "on the cores of prefill"}};
  if (const auto& spill = layout.prefill.spill)
    object["spill"] = {{"first_row", spill->y},
                       {"rows", spill->height},
                       {"columns", spill->width},
                       {"bytes_per_core", idle_core_bytes}};
  object["device"] = device.name;
  return object;
}

ordered_json json_of(const Run& run, const PlmrDevice& device, const WaferLayout& layout, const std::string& model,
                     const AllReduceOptions& all_reduce, const KvRows& rows) {
  ordered_json tokens = ordered_json::array(), cycles = ordered_json::array();
  std::string text;
  for (const Generated& generated : run.tokens) {
    tokens.push_back(generated.token);
    cycles.push_back(generated.cycles);
    text += generated.text;
  }
  ordered_json object{{"model", model},
                      {"mesh", json_of(layout.decode_mesh)},
                      {"sync", name_of(all_reduce.sync)},
                      {"phases", all_reduce.phases}};
  object.update(json_of(device, layout, run.idle_core_bytes));
  object.update({{"prompt_tokens", run.prompt_tokens},
                 {"text", text},
                 {"tokens", tokens},
                 {"finish_reason", run.finish},
                 {"prefill", ran_json(device, run.prefill)},
                 {"token_cycles", cycles}});
  ordered_json analytical{{"prefill_cycles", run.closed.cycles()},
                          {"prefill_breakdown", json_of(device, run.closed)["breakdown"]}};
  if (has_decoded(run)) {
    object.update({{"decode_cycles", decode_totals(run).cycles},
                   {"last_token", ran_json(device, run.decode)},
                   {"idle_share", run.idle_share}});
    analytical["decode_cycles"] = decode_totals(run).predicted;
    analytical["last_token_breakdown"] = json_of(device, run.closed_token)["breakdown"];
  }
  object.update({{"analytical", analytical},
                 {"kv_capacity_tokens", capacity_of(layout.decode, rows)},
                 {"kv_tokens_fullest_row", rows.fullest()},
                 {"basis", basis_json(run)}});
  if (run.difference)
    object["check"] = {{"largest_difference", run.difference->largest},
                       {"largest_logit", run.difference->largest_logit},
                       {"rows", run.difference->rows},
                       {"same_token", run.difference->same_token}};
  return object;
}

// What the analytical model says of a part. Of decode it calls the products GEMV.
std::string beside(const WaferCost& closed, const PartText& part) {
  const double cycles = closed.cycles(part.name == "products" ? "GEMV" : part.name);
  return cycles > 0 ? fmt::format("analytical model {:.0f}", cycles) : "not in the analytical model";
}

std::string summary_of(const Run& run, const PlmrDevice& device, const WaferLayout& layout, const KvRows& rows) {
  const Totals decode = decode_totals(run);
  std::string text;
  for (const Generated& generated : run.tokens) text += generated.text;
  std::string lines = line_text("text", printable(text, std::size_t{1} << 20));
  const auto cycles = [&](double n) { return fmt::format("{:.0f} cycles, {:.4g} us", n, device.seconds(n) * 1e6); };
  lines +=
      line_text("prefill", fmt::format("{}, {}: {}; analytical model {:.0f}", tokens_text(run.prompt_tokens),
                                       cycles(run.prefill.cycles()), shares_text(run.prefill), run.closed.cycles()));
  for (const PartText& part : parts_of(run.prefill))
    lines += line_text("  " + part.name,
                       fmt::format("{:.0f} cycles, {:.1f} %, {}; {}", part.cycles,
                                   100 * part.cycles / run.prefill.cycles(), part.basis, beside(run.closed, part)));
  lines += line_text(
      "  hops and words",
      fmt::format("{:.0f} cycles of these, {:.1f} %: {}, in which nothing was fitted", run.prefill.hops_and_words(),
                  100 * run.prefill.hops_and_words() / run.prefill.cycles(), hops_and_words_basis(run.prefill)));
  const std::int64_t made = std::ssize(run.tokens) - 1;
  if (decode.cycles > 0) {
    lines += line_text("decode",
                       fmt::format("{}, {}, {:.0f} tokens a second: {}; analytical model {:.0f}", tokens_text(made),
                                   cycles(decode.cycles), static_cast<double>(made) / device.seconds(decode.cycles),
                                   shares_text(run.decode), decode.predicted));
    for (const PartText& part : parts_of(run.decode))
      lines += line_text("  " + part.name, fmt::format("{:.0f} cycles of the last token, {:.1f} %, {}; {}", part.cycles,
                                                       100 * part.cycles / run.decode.cycles(), part.basis,
                                                       beside(run.closed_token, part)));
    lines += line_text("  hops and words",
                       fmt::format("{:.0f} cycles of the last token, {:.1f} %: {}, in which nothing "
                                   "was fitted",
                                   run.decode.hops_and_words(), 100 * run.decode.hops_and_words() / run.decode.cycles(),
                                   hops_and_words_basis(run.decode)));
  }
  lines += line_text("basis", kBasisLegend);
  lines += line_text("a core",
                     fmt::format("{:.0f} of {:.0f} bytes, {} of {:.0f} routes at the most",
                                 std::max(run.prefill.memory_bytes, run.decode.memory_bytes), device.sram_bytes.value,
                                 std::max(run.prefill.routes, run.decode.routes), device.free_routes.value));
  lines += line_text("KV cache", fmt::format("{} tokens, {} in the fullest of {} rows; {} fit", rows.size(),
                                             rows.fullest(), rows.rows(), capacity_of(layout.decode, rows)));
  if (run.difference)
    lines +=
        line_text("against the CPU", fmt::format("logits differ by {:.2g} at most, the largest is {:.4g}; {} of {} "
                                                 "tokens are the same",
                                                 run.difference->largest, run.difference->largest_logit,
                                                 run.difference->same_token, run.difference->rows));
  if (const auto& spill = layout.prefill.spill)
    lines += line_text("prompt's KV", fmt::format("on the idle cores below prefill's mesh, rows {} to {}: {:.0f} bytes "
                                                  "of each",
                                                  spill->y, spill->y + spill->height - 1, run.idle_core_bytes));
  if (text_of(layout.prefill_mesh) != text_of(layout.decode_mesh))
    lines += line_text("regions of prefill", fmt::format("{} of {} on {}", layout.prefill.regions,
                                                         text_of(layout.prefill_mesh), device.name));
  lines += line_text(
      "regions",
      fmt::format("{} of {} on {}{}", layout.decode.regions, text_of(layout.decode_mesh), device.name,
                  run.idle_share > 0 ? fmt::format("; pipeline utilisation {:.0f} %: one region works at a time",
                                                   100 * (1 - run.idle_share))
                                     : ""));
  return lines;
}

void generate(const RunOptions& options, WaferLlama& model, const AnalyticalModel& analytical,
              const Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt,
              std::span<const std::int32_t> stop_ids, const InterruptGuard& interrupt, Run& run) {
  TextStream text(tokenizer, {});
  std::vector<float> logits = model.prefill(prompt);
  run.prefill = model.cost();
  run.idle_core_bytes = model.idle_core_bytes();
  double taken = run.prefill.cycles(), predicted = run.closed.cycles();
  run.history.record(model.rows());
  while (!interrupt.interrupted()) {
    const std::int32_t token = chosen_by(model);
    if (options.check) run.logits.push_back(logits);
    const bool stops = std::ranges::find(stop_ids, token) != stop_ids.end();
    const bool last = stops || std::ssize(run.tokens) + 1 == options.max_tokens;
    run.tokens.push_back({.token = token, .text = text.push(token), .cycles = taken, .predicted = predicted});
    if (last) run.tokens.back().text += text.finish();
    print_token(options, run);
    if (stops) run.finish = "stop";
    if (last) return;
    run.closed_token = analytical.decode(model.rows().size()).cost;
    predicted = run.closed_token.cycles();
    logits = model.decode(token);
    taken = model.cost().cycles();
    run.decode = model.cost();
    run.idle_share = model.idle_share();
    run.history.record(model.rows());
  }
  run.finish = "interrupted";
}

void run_on_wafer(const RunOptions& options) {
  if (!options.mesh && !(options.prefill_mesh && options.decode_mesh))
    throw_error<InputError>("give --mesh, or --prefill-mesh and --decode-mesh");
  const std::unique_ptr<ModelSource> source = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(options.model);
  const PlmrDevice device = open_device(options.output);
  const WaferModel shape = wafer_shape(*source);
  const std::vector<std::int32_t> prompt = tokenizer.encode(options.prompt);
  if (prompt.empty()) throw_error<InputError>("--prompt: it has no tokens");

  // Checks before the weights are read; with concat, the KV cache may fill up later.
  const std::int64_t last_context = std::ssize(prompt) + options.max_tokens - 1;
  const std::int64_t max_context = describe_model(source->config()).context.value_or(last_context);
  if (last_context > max_context)
    throw_error<InputError>("--prompt has {} tokens and --max-tokens is {}; the model's context is {}", prompt.size(),
                            options.max_tokens, max_context);
  // Rows share the prompt evenly; concat fails when the last row is full, not before.
  const std::int64_t evenly = options.kv_method == KvMethod::shift ? last_context : std::ssize(prompt);
  const int rows_of_cores = (options.decode_mesh ? *options.decode_mesh : *options.mesh).height;
  const WaferLayout layout = layout_of(options, device, shape, std::ssize(prompt), (evenly - 1) / rows_of_cores + 1);
  check_prefill_mesh(layout.prefill_mesh);
  const AnalyticalModel analytical{device, shape, layout, options.all_reduce};
  Run run{.prompt_tokens = std::ssize(prompt),
          .prefill = {},
          .closed = analytical.prefill(std::ssize(prompt)).cost,
          .decode = {},
          .closed_token = {},
          .tokens = {},
          .idle_core_bytes = 0,
          .history = {}};
  analytical.decode(last_context);
  warn_of_places(device, shape, layout.prefill_mesh, std::ssize(prompt));
  check_host_memory(shape, layout.decode_mesh);
  std::optional<PendingFile> heat_map;
  if (!options.heat_map.empty()) heat_map.emplace(options.heat_map);

  GenerationDefaults defaults;
  if (const auto config = source->generation_config()) defaults = read_generation_defaults(*config);
  const int threads = options.threads > 0 ? options.threads : discover_cpu().usable_threads;
  ThreadPool pool(threads);
  const InterruptGuard interrupt;
  const std::int64_t row_tokens = layout.decode.row_tokens;
  KvRows rows(rows_of_cores, options.kv_method);
  {  // frees the wafer's weights before the CPU's are loaded
    Progress progress("loading", source->total_bytes());
    WaferLlama model(
        *source,
        {.cores = layout.decode_mesh,
         .prefill_cores = layout.prefill_mesh,
         .decode = {.kv_method = options.kv_method,
                    .kv_limits = {.tokens = row_tokens * rows_of_cores,
                                  .tokens_in_row =
                                      options.kv_method == KvMethod::concat ? std::optional(row_tokens) : std::nullopt},
                    .program = {.all_reduce = options.all_reduce, .device = device, .regions = layout.decode.regions}},
         .prefill_regions = layout.prefill.regions,
         .spill = layout.prefill.spill,
         .load = {.dtype = std::nullopt, .on_progress = [&](std::size_t done) { progress.update(done); }}},
        pool);
    generate(options, model, analytical, tokenizer, prompt,
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

  write_wafer_result(options.output, device, json_of(run, device, layout, options.model, options.all_reduce, rows),
                     summary_of(run, device, layout, rows));
  if (heat_map) write_kv_heat_map(*heat_map, run.history, options.kv_method == KvMethod::concat ? row_tokens : 0);
  if (interrupt.interrupted()) throw Interrupted{interrupt.signal()};
}

}  // namespace

void add_wafer_run(CLI::App& wafer) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = wafer.add_subcommand("run", "Generate text core by core, and count the cycles");
  add_model_option(*command, options->model, "Folder of the model (Hugging Face layout), or synth:NAME");
  add_mesh_option(*command, "--mesh", options->mesh, "The cores that compute: of prefill and of decode");
  add_mesh_option(*command, "--prefill-mesh", options->prefill_mesh, "The cores of prefill; default --mesh");
  add_mesh_option(*command, "--decode-mesh", options->decode_mesh,
                  "The cores of decode, to which the model moves after the prompt; default --mesh");
  command->add_option("-p,--prompt", options->prompt, "The prompt; special tokens in it are parsed")->required();
  add_number_option<std::int64_t>(*command, "--max-tokens", options->max_tokens,
                                  "Tokens to generate at most, greedily; default 256", {.min = 1, .max = 1 << 20});
  add_kv_option(*command, options->kv_method,
                "How the KV cache grows: shift keeps rows of cores balanced, concat fills the last one");
  add_number_option<int>(*command, "--regions", options->regions,
                         "Meshes that share the layers as stages of a pipeline; default as few as hold them",
                         {.min = 1, .max = 1 << 20});
  command->add_option("--heatmap", options->heat_map, "A PNG of how full each row's KV cache is over the generation")
      ->type_name("FILE");
  command->add_flag("--check", options->check, "Compare the logits with those of the CPU, in float32, afterwards");
  command
      ->add_option_function<std::string>(
          "--sync", [options](const std::string& name) { options->all_reduce.sync = wafer_sync(name); },
          "How a step of all cores begins: dataflow (default), rendezvous, barrier")
      ->check(CLI::IsMember({"dataflow", "rendezvous", "barrier"}));
  add_number_option<int>(*command, "--k", options->all_reduce.phases, "Phases of the K-tree; default 2",
                         {.min = 1, .max = 32});
  add_number_option<int>(*command, "--threads", options->threads, "Processor threads; default: all usable",
                         {.min = 1, .max = 1024});
  add_wafer_output_options(*command, options->output);
  command->callback([options] { run_on_wafer(*options); });
}

}  // namespace heddle
