// heddle wafer kv: how many tokens a KV cache holds on a mesh, by concatenation and by shifting.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/kv_heat_map.h"
#include "cli/number_option.h"
#include "cli/wafer.h"
#include "cli/wafer_report.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostDrawn = 1 << 20;

struct KvOptions {
  WaferOutput output;
  std::string model;
  std::optional<WaferMesh> mesh;
  KvCapacityOptions capacity;
  std::string heat_map;
  KvMethod method = KvMethod::shift;
  std::int64_t context = 0;
  std::optional<std::int64_t> tokens;
};

// The rows as `tokens` tokens come after a prompt of `context`, or as many as fit. Returns how many came.
std::int64_t draw(const KvOptions& options, const KvCapacity& kv, WaferMesh mesh) {
  PendingFile file(options.heat_map);
  const bool concat = options.method == KvMethod::concat;
  KvRows rows(mesh.height, options.method,
              {.tokens = kv.shift_tokens, .tokens_in_row = concat ? std::optional(kv.concat_tokens) : std::nullopt});
  rows.fill(options.context);
  KvHistory history;
  history.record(rows);
  const auto room = [&] {
    return concat ? rows.count(mesh.height - 1) < kv.concat_tokens : rows.size() < kv.shift_tokens;
  };
  std::int64_t came = 0;
  for (; came < options.tokens.value_or(kMostDrawn) && room(); ++came) {
    rows.append();
    history.record(rows);
  }
  write_kv_heat_map(file, history, kv.concat_tokens);
  return came;
}

void run_kv(const KvOptions& options) {
  const NamedWaferModel model = open_wafer_model(options.model);
  const PlmrDevice device = open_plmr_device(options.output.device);
  const WaferMesh mesh = options.mesh.value_or(mesh_on(device, default_meshes(model.name).decode));
  const KvCapacity kv = kv_capacity(device, model.sizes, mesh, options.capacity);
  const double ratio =
      static_cast<double>(kv.shift_tokens) / static_cast<double>(std::max<std::int64_t>(kv.concat_tokens, 1));
  const ordered_json object{{"model", model.name},
                            {"device", device.name},
                            {"mesh", json_of(mesh)},
                            {"concat_tokens", kv.concat_tokens},
                            {"shift_tokens", kv.shift_tokens},
                            {"regions", kv.regions},
                            {"reserve_bytes_per_core", options.capacity.reserve_bytes},
                            {"weight_bytes_per_core", kv.weight_bytes},
                            {"free_bytes_per_core", kv.free_bytes},
                            {"token_bytes_per_core", kv.token_bytes}};
  std::string text = line_text("KV cache", fmt::format("{} on {} of {}", model.name, text_of(mesh), device.name));
  text += line_text("concatenated", fmt::format("{} tokens: new ones all go to one row", kv.concat_tokens));
  text += line_text("shifted", fmt::format("{} tokens, {:.0f} times as many: every row fills", kv.shift_tokens, ratio));
  text += line_text("regions", fmt::format("{} pipeline stages of {}", kv.regions, text_of(mesh)));
  text +=
      line_text("a core", fmt::format("{:.0f} bytes weights, {:.0f} reserve, {:.0f} free; a token {:.4g} in its row",
                                      kv.weight_bytes, options.capacity.reserve_bytes, kv.free_bytes, kv.token_bytes));
  if (!options.heat_map.empty())
    text += line_text("heat map", fmt::format("{}: {} tokens after a prompt of {}", options.heat_map,
                                              draw(options, kv, mesh), options.context));
  write_wafer_result(options.output.json, object, text);
}

}  // namespace

void add_wafer_kv(CLI::App& wafer) {
  const auto options = std::make_shared<KvOptions>();
  CLI::App* command = wafer.add_subcommand("kv", "Tokens that a KV cache holds beside the weights");
  command->add_option("--model", options->model, "NAME or config.json")->required();
  add_mesh_option(*command, "--mesh", options->mesh, "The cores of a region; default the paper's for the model");
  add_number_option<int>(*command, "--regions", options->capacity.regions,
                         "Regions that share the layers; default as many as the device's cores make",
                         {.min = 1, .max = 1 << 20});
  add_number_option<double>(*command, "--reserve", options->capacity.reserve_bytes,
                            "Bytes of a core for programs and buffers; default 8016, fitted to one cell of the paper",
                            {.min = 0, .max = 1e12});
  command->add_option("--heatmap", options->heat_map, "A PNG of how full each row's cache is while tokens are made")
      ->type_name("FILE");
  add_kv_option(*command, options->method,
                "Of the heat map: shift keeps rows of cores balanced, concat fills the last one");
  add_number_option<std::int64_t>(*command, "--context", options->context, "Of the heat map: the prompt; default 0",
                                  {.min = 0, .max = kMostDrawn});
  add_number_option<std::int64_t>(*command, "--tokens", options->tokens,
                                  "Of the heat map: made after it, or as many as fit, which is the default",
                                  {.min = 1, .max = kMostDrawn});
  add_wafer_output_options(*command, options->output);
  command->callback([options] { run_kv(*options); });
}

}  // namespace heddle
