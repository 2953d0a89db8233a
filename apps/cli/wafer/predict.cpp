// heddle wafer predict: tokens per second of a model in prefill, in decode, and end to end.
#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "base/error.h"
#include "cli/number_option.h"
#include "cli/wafer/cells.h"
#include "cli/wafer/report.h"
#include "cli/wafer/wafer.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;

struct PredictOptions {
  WaferOutput output;
  std::string model;
  std::string phase = "decode";
  std::string method = "waferllm";
  std::optional<WaferMesh> mesh, prefill_mesh, decode_mesh;
  std::int64_t context = 4096;
  std::optional<std::int64_t> in;
  std::int64_t out = 128;
  int phases = 2;
  std::string sync = "dataflow";
};

// Rejects options of other phases.
void check_options(const CLI::App& command, const PredictOptions& options) {
  const auto refuse = [&](const char* name, const std::string& phases) {
    if (command.count(name) > 0) throw_error<InputError>("{} is of {}; --phase is {}", name, phases, options.phase);
  };
  if (options.phase != "end-to-end") {
    refuse("--in", "--phase end-to-end (--context says how many tokens there are)");
    refuse("--out", "--phase end-to-end");
    refuse(options.phase == "prefill" ? "--decode-mesh" : "--prefill-mesh", "other phases");
  } else if (options.in && command.count("--context") > 0) {
    throw_error<InputError>("--in and --context are the same, end to end: give one");
  }
  if (options.phase == "prefill") refuse("--k", "decode");
  if (options.method != "waferllm" && command.count("--k") > 0)
    throw_error<InputError>("--k is of WaferLLM's K-tree; --method is {}", options.method);
  if (options.method != "waferllm" && command.count("--sync") > 0)
    throw_error<InputError>(
        "--sync is an option of WaferLLM's programs; in --method {} every core waits for its own data", options.method);
}

WaferWork work_of(const PredictOptions& options, const NamedWaferModel& model, const PlmrDevice& device) {
  const WaferModelMeshes meshes = default_meshes(model.name);
  WaferWork work{.prefill_mesh = options.prefill_mesh.value_or(options.mesh.value_or(mesh_on(device, meshes.prefill))),
                 .decode_mesh = options.decode_mesh.value_or(options.mesh.value_or(mesh_on(device, meshes.decode))),
                 .context = options.in.value_or(options.context),
                 .method = wafer_method(options.method),
                 .all_reduce = {.phases = options.phases, .sync = wafer_sync(options.sync)}};
  // The baselines stay on the cores that prefilled (wafer_baselines.h).
  if (options.phase == "end-to-end" && work.method != WaferMethod::waferllm && !options.decode_mesh)
    work.decode_mesh = work.prefill_mesh;
  if (options.phase == "prefill") work.phase = WaferPhase::prefill;
  if (options.phase == "decode") work.phase = WaferPhase::decode;
  if (options.phase == "end-to-end") {
    work.phase = WaferPhase::end_to_end;
    work.output = options.out;
  }
  return work;
}

ordered_json mesh_json(const WaferWork& work) {
  if (work.phase == WaferPhase::prefill) return {{"mesh", json_of(work.prefill_mesh)}};
  if (work.phase == WaferPhase::decode) return {{"mesh", json_of(work.decode_mesh)}};
  return {{"prefill_mesh", json_of(work.prefill_mesh)}, {"decode_mesh", json_of(work.decode_mesh)}};
}

std::string mesh_text(const WaferWork& work) {
  if (work.phase == WaferPhase::prefill) return text_of(work.prefill_mesh);
  if (work.phase == WaferPhase::decode) return text_of(work.decode_mesh);
  return fmt::format("{} (prefill) and {} (decode)", text_of(work.prefill_mesh), text_of(work.decode_mesh));
}

void run_predict(const CLI::App& command, const PredictOptions& options) {
  check_options(command, options);
  const NamedWaferModel model = open_wafer_model(options.model);
  const PlmrDevice device = open_device(options.output);
  const WaferWork work = work_of(options, model, device);
  const WaferPrediction prediction = predict_wafer(device, model.sizes, work);

  ordered_json object{{"model", model.name},
                      {"device", device.name},
                      {"phase", options.phase},
                      {"method", options.method},
                      {"context", work.context}};
  if (work.method == WaferMethod::waferllm) object["sync"] = options.sync;
  if (work.method == WaferMethod::waferllm && work.phase != WaferPhase::prefill) object["phases"] = options.phases;
  if (work.method != WaferMethod::waferllm) object["ignores_as_published"] = ignored_properties(work.method);
  object.update(mesh_json(work));
  if (work.phase == WaferPhase::end_to_end) object["output"] = work.output;
  const Bases rate = basis_of_rate(device, model.name, work, prediction);
  object.update(json_of(device, prediction));
  object["basis"] = basis_json(device, work, prediction, rate);
  std::string sync_lines;  // the baselines have equal results for all
  if (work.method == WaferMethod::waferllm)
    for (const char* sync : {"dataflow", "rendezvous", "barrier"}) {
      WaferWork other = work;
      other.all_reduce.sync = wafer_sync(sync);
      const double tokens = wafer_tokens_per_second(device, model.sizes, other);
      object["tokens_per_s_by_sync"][sync] = tokens;
      object["basis"]["tokens_per_s_by_sync"][sync] = text_of(basis_of_rate(device, model.name, other, prediction));
      sync_lines += line_text(sync, fmt::format("{:.1f} tokens a second", tokens));
    }

  std::string text =
      line_text(options.phase, fmt::format("{} by {} on {} of {}, context {}{}{}", model.name, options.method,
                                           mesh_text(work), device.name, work.context,
                                           work.output > 0 ? fmt::format(", {} tokens out", work.output) : "",
                                           options.sync == "dataflow" ? "" : ", " + options.sync));
  if (work.method != WaferMethod::waferllm)
    text += line_text("ignores", fmt::format("{} of P, L, M, R, as published", ignored_properties(work.method)));
  text += text_of(device, work, prediction, rate) + sync_lines;
  write_wafer_result(options.output, device, object, text);
}

}  // namespace

void add_wafer_predict(CLI::App& wafer) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* command = wafer.add_subcommand("predict", "Predict the tokens per second of a model");
  command
      ->add_option("-m,--model,model", options->model,
                   "llama-3-8b, llama-2-13b, codellama-34b, qwen2-72b, ..., or a config.json")
      ->required()
      ->type_name("NAME|FILE");
  command->add_option("--phase", options->phase, "prefill, decode (default) or end-to-end")
      ->check(CLI::IsMember({"prefill", "decode", "end-to-end"}))
      ->type_name("NAME");
  add_mesh_option(*command, "--mesh", options->mesh, "The cores; default the paper's for the model and phase");
  add_mesh_option(*command, "--prefill-mesh", options->prefill_mesh,
                  "Mesh of prefill, where the phases' meshes differ");
  add_mesh_option(*command, "--decode-mesh", options->decode_mesh, "Mesh of decode, where the phases' meshes differ");
  add_number_option<std::int64_t>(*command, "--context", options->context,
                                  "Tokens of the prompt, or before the one that decode makes; default 4096",
                                  {.min = 1, .max = kMostTokens});
  add_number_option<std::int64_t>(*command, "--in", options->in, "The same, end to end",
                                  {.min = 1, .max = kMostTokens});
  add_number_option<std::int64_t>(*command, "--out", options->out, "Tokens to generate, end to end; default 128",
                                  {.min = 1, .max = kMostTokens});
  add_number_option<int>(*command, "--k", options->phases, "Phases of decode's K-tree; default 2",
                         {.min = 1, .max = 32});
  command
      ->add_option("--sync", options->sync,
                   "How a step of all cores begins: dataflow (default, and what was fitted), rendezvous, barrier")
      ->check(CLI::IsMember({"dataflow", "rendezvous", "barrier"}))
      ->type_name("NAME");
  command->add_option("--method", options->method, "waferllm (default), t10 or ladder")
      ->check(CLI::IsMember({"waferllm", "t10", "ladder"}))
      ->type_name("NAME");
  add_wafer_output_options(*command, options->output);
  command->callback([command, options] { run_predict(*command, *options); });
}

}  // namespace heddle
