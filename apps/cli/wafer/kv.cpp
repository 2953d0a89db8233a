// heddle wafer kv: how many tokens a KV cache holds on a mesh, with concat and with shift.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "cli/bench/record.h"
#include "cli/number_option.h"
#include "cli/wafer/kv_heat_map.h"
#include "cli/wafer/report.h"
#include "cli/wafer/wafer.h"
#include "wafer/cost/kv_accounting.h"
#include "wafer/cost/wafer_regions.h"
#include "wafer/programs/memory.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostDrawn = 1 << 20;

struct KvOptions {
  WaferOutput output;
  std::string model;
  std::optional<WaferMesh> mesh;
  int regions = 0;                // 0: as many as the device's cores make
  std::optional<double> reserve;  // of a core, in place of what the first accounting has beside weights
  std::string heat_map;
  KvMethod method = KvMethod::shift;
  std::int64_t context = 0;
  std::optional<std::int64_t> tokens;
};

void check_heat_map_options(const CLI::App& command, const KvOptions& options) {
  if (!options.heat_map.empty()) return;
  for (const char* name : {"--kv", "--context", "--tokens"})
    if (command.count(name) > 0) throw_error<InputError>("{} is of the heat map; give --heatmap FILE, too", name);
}

// Tokens after the prompt: --tokens, or as many as fit. Throws InputError if they do not fit.
std::int64_t tokens_to_draw(const KvOptions& options, const KvAccounting& kv, WaferMesh mesh) {
  const bool concat = options.method == KvMethod::concat;
  if (options.context > kv.shift_tokens)
    throw_error<InputError>("--context {}: {} more than the {} tokens that the KV cache holds", options.context,
                            options.context - kv.shift_tokens, kv.shift_tokens);
  // The prompt is spread over all rows, odd tokens in the last ones; concat adds all further tokens to the last row.
  const std::int64_t in_last_row = (options.context + mesh.height - 1) / mesh.height;
  const std::int64_t room = concat ? kv.concat_tokens - in_last_row : kv.shift_tokens - options.context;
  if (options.tokens && *options.tokens > room)
    throw_error<InputError>("--tokens {}: {} more than the {} that the KV cache holds after a prompt of {}{}",
                            *options.tokens, *options.tokens - room, room, options.context,
                            concat ? ", appended: the last row of cores is full then" : "");
  return options.tokens.value_or(std::clamp<std::int64_t>(room, 0, kMostDrawn));
}

// Returns the number of tokens that were added.
std::int64_t draw(const KvOptions& options, const KvAccounting& kv, WaferMesh mesh) {
  const std::int64_t tokens = tokens_to_draw(options, kv, mesh);
  PendingFile file(options.heat_map);
  const bool concat = options.method == KvMethod::concat;
  KvRows rows(mesh.height, options.method,
              {.tokens = kv.shift_tokens, .tokens_in_row = concat ? std::optional(kv.concat_tokens) : std::nullopt});
  rows.fill(options.context);
  KvHistory history;
  history.record(rows);
  for (std::int64_t came = 0; came < tokens; ++came) {
    rows.append();
    history.record(rows);
  }
  write_kv_heat_map(file, history, kv.concat_tokens);
  return tokens;
}

// With a reserve: layers and heads in fractions, and no tables, as kv_capacity() counts.
KvAccounting with_reserve(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, int regions,
                          double reserve) {
  const KvCapacity kv = kv_capacity(device, model, mesh, {.regions = regions, .reserve_bytes = reserve});
  return {.fitted_reserve = reserve == KvCapacityOptions{}.reserve_bytes,
          .weight_bytes = kv.weight_bytes,
          .beside_bytes = reserve,
          .token_bytes = kv.token_bytes,
          .concat_tokens = kv.concat_tokens,
          .shift_tokens = kv.shift_tokens};
}

// Of those without a fitted constant, the first that has room; or the one with the reserve that was asked for. Throws
// InputError where none has room.
KvAccounting accounting_of(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, int regions,
                           const KvOptions& options) {
  if (options.reserve) return with_reserve(device, model, mesh, regions, *options.reserve);
  double least = std::numeric_limits<double>::infinity();
  for (const KvAccounting& way : kv_accountings(device, model, mesh, regions)) {
    if (way.fitted_constants() > 0) continue;
    if (way.shift_tokens > 0) return way;
    least = std::min(least, way.weight_bytes + way.beside_bytes);
  }
  throw_error<InputError>(
      "KV cache: the fullest core needs {:.0f} bytes for weights and buffers in {} region(s) of {} x {}, however they "
      "are counted; a core of {} has {:.0f}, too few for a token; take more cores, or more --regions",
      least, regions, mesh.width, mesh.height, device.name, device.sram_bytes.value);
}

// {"regions", "concat_tokens", "shift_tokens"} of `count(regions)`, a pair; null where the weights leave no room.
template <class Count>
ordered_json capacity_json(int regions, Basis basis, Count&& count) {
  ordered_json object{
      {"regions", regions}, {"concat_tokens", nullptr}, {"shift_tokens", nullptr}, {"basis", text_of(basis)}};
  try {
    const auto [concat, shift] = count();
    object["concat_tokens"] = concat;
    object["shift_tokens"] = shift;
  } catch (const InputError&) {  // reported as null
  }
  return object;
}

std::pair<std::int64_t, std::int64_t> tokens_of(const KvAccounting& way) {
  return {way.concat_tokens, way.shift_tokens};
}

Basis basis_of(const KvAccounting& way) {
  return way.fitted_reserve ? Basis::fitted : Basis::analytical;
}

ordered_json json_of(const KvAccounting& way) {
  return {{"tables_on_cores", way.tables},
          {"whole_layers", way.whole_layers},
          {"fitted_constants", way.fitted_constants()},
          {"weight_bytes_per_core", way.weight_bytes},
          {"beside_bytes_per_core", way.beside_bytes},
          {"token_bytes_per_core", way.token_bytes},
          {"concat_tokens", way.concat_tokens},
          {"shift_tokens", way.shift_tokens},
          {"basis", text_of(basis_of(way))}};
}

std::string accountings_text(const std::vector<KvAccounting>& ways) {
  std::vector<std::vector<std::string>> rows{
      {"embedding, output", "layers", "beside them", "weights", "a token", "concatenated", "shifted"}};
  for (const KvAccounting& way : ways)
    rows.push_back({way.tables ? "on the cores" : "elsewhere", way.whole_layers ? "whole" : "in fractions",
                    fmt::format("{:.0f}, {}", way.beside_bytes, way.fitted_reserve ? "fitted" : "buffers"),
                    fmt::format("{:.0f}", way.weight_bytes), fmt::format("{:.4g}", way.token_bytes),
                    way.shift_tokens > 0 ? fmt::format("{}", way.concat_tokens) : "no room",
                    way.shift_tokens > 0 ? fmt::format("{}", way.shift_tokens) : ""});
  return table_text(rows);
}

std::string capacity_text(const ordered_json& capacity) {
  if (capacity["shift_tokens"].is_null())
    return fmt::format("in {} region(s) the weights leave no room", capacity["regions"].get<int>());
  return fmt::format("{} concatenated, {} shifted, in {} region(s)", capacity["concat_tokens"].get<std::int64_t>(),
                     capacity["shift_tokens"].get<std::int64_t>(), capacity["regions"].get<int>());
}

void run_kv(const CLI::App& command, const KvOptions& options) {
  check_heat_map_options(command, options);
  const NamedWaferModel model = open_wafer_model(options.model);
  const PlmrDevice device = open_device(options.output);
  const WaferMesh mesh = options.mesh.value_or(mesh_on(device, default_meshes(model.name).decode));
  // Regions, and whether the weights alone fit into them.
  const KvCapacity bare = kv_capacity(device, model.sizes, mesh, {.regions = options.regions, .reserve_bytes = 0});
  const KvAccounting kv = accounting_of(device, model.sizes, mesh, bare.regions, options);
  const int beside = std::min(bare.side_by_side, model.sizes.num_layers);
  const ordered_json side_by_side = capacity_json(
      beside, basis_of(kv), [&] { return tokens_of(accounting_of(device, model.sizes, mesh, beside, options)); });
  // What the programs of heddle wafer run hold: whole layers, tiles rounded up, and their own buffers.
  const ordered_json by_run = model.sizes.experts > 0 ? ordered_json() : capacity_json(beside, Basis::counted, [&] {
    const std::int64_t row = fit_wafer_regions(device, model.sizes, mesh, 1, 1, beside).row_tokens;
    return std::pair(row, row * mesh.height);
  });
  const double fitted_reserve = KvCapacityOptions{}.reserve_bytes;
  const ordered_json fitted = capacity_json(bare.regions, Basis::fitted, [&] {
    return tokens_of(with_reserve(device, model.sizes, mesh, bare.regions, fitted_reserve));
  });
  const std::vector<KvAccounting> ways = kv_accountings(device, model.sizes, mesh, bare.regions);
  const double free_bytes = device.sram_bytes.value - kv.beside_bytes - kv.weight_bytes;
  const std::string basis = text_of(basis_of(kv));
  ordered_json object{{"model", model.name},
                      {"device", device.name},
                      {"mesh", json_of(mesh)},
                      {"concat_tokens", kv.concat_tokens},
                      {"shift_tokens", kv.shift_tokens},
                      {"fitted_constants", kv.fitted_constants()},
                      {"tables_on_cores", kv.tables},
                      {"whole_layers", kv.whole_layers},
                      {"regions", bare.regions},
                      {"side_by_side", side_by_side},
                      {"run", by_run},
                      {"fitted", fitted},
                      {"weight_bytes_per_core", kv.weight_bytes},
                      {"beside_bytes_per_core", kv.beside_bytes},
                      {"free_bytes_per_core", free_bytes},
                      {"token_bytes_per_core", kv.token_bytes},
                      {"basis", basis}};
  for (const KvAccounting& way : ways) object["reckonings"].push_back(json_of(way));
  std::string text = line_text("KV cache", fmt::format("{} on {} of {}", model.name, text_of(mesh), device.name));
  text += line_text("concatenated", fmt::format("{} tokens: new ones all go to one row", kv.concat_tokens));
  text += line_text("shifted", fmt::format("{} tokens: all {} rows fill", kv.shift_tokens, mesh.height));
  text +=
      line_text("basis", fmt::format("{}, {}", basis,
                                     options.reserve
                                         ? fmt::format("with a reserve of {:.0f} bytes", kv.beside_bytes)
                                         : fmt::format("without a fitted constant: embedding and output {}, layers {}",
                                                       kv.tables ? "on the cores" : "elsewhere",
                                                       kv.whole_layers ? "whole" : "in fractions")));
  text += line_text("regions", fmt::format("{} pipeline stages of {}; {} of them lie side by side", bare.regions,
                                           text_of(mesh), bare.side_by_side));
  text += line_text("a core", fmt::format("{:.0f} bytes weights{}, {:.0f} {}, {:.0f} free; a token {:.4g} in its row",
                                          kv.weight_bytes, kv.tables ? " and tables" : "", kv.beside_bytes,
                                          options.reserve ? "reserve" : "buffers", free_bytes, kv.token_bytes));
  text += line_text("side by side", capacity_text(side_by_side));
  if (!by_run.is_null()) text += line_text("wafer run", capacity_text(by_run));
  text += line_text("fitted", fmt::format("{}, with a reserve of {:.0f} bytes, fitted to the paper's cell",
                                          capacity_text(fitted), fitted_reserve));
  if (!options.heat_map.empty())
    text += line_text("heat map", fmt::format("{}: {} tokens after a prompt of {}", options.heat_map,
                                              draw(options, kv, mesh), options.context));
  text += fmt::format(
              "\nWays to account for it, on {} region(s), in bytes of a core and tokens; heddle wafer tables takes the "
              "first:\n",
              bare.regions) +
          accountings_text(ways);
  write_wafer_result(options.output, device, object, text);
}

}  // namespace

void add_wafer_kv(CLI::App& wafer) {
  const auto options = std::make_shared<KvOptions>();
  CLI::App* command = wafer.add_subcommand("kv", "How many tokens the KV cache holds beside the weights");
  command->add_option("-m,--model,model", options->model, "NAME or config.json")->required()->type_name("NAME|FILE");
  add_mesh_option(*command, "--mesh", options->mesh, "The cores of a region; default the paper's for the model");
  add_number_option<int>(
      *command, "--regions", options->regions,
      "Regions that share the layers; default as many as the device's cores make, whatever their shape",
      {.min = 1, .max = 1 << 20});
  add_number_option<double>(
      *command, "--reserve", options->reserve,
      "Bytes of a core beside weights, keys and values, which then lie in fractions of layers and "
      "without tables; default: embedding, output matrix and decode's buffers, in whole layers",
      {.min = 0, .max = 1e12});
  command->add_option("--heatmap", options->heat_map, "A PNG of how full each row's cache is while tokens are made")
      ->type_name("FILE");
  add_kv_option(*command, options->method,
                "For the heat map: shift keeps rows of cores balanced, concat fills the last one");
  add_number_option<std::int64_t>(*command, "--context", options->context,
                                  "For the heat map: tokens of the prompt; default 0", {.min = 0, .max = kMostDrawn});
  add_number_option<std::int64_t>(*command, "--tokens", options->tokens,
                                  "For the heat map: tokens after the prompt; default as many as fit",
                                  {.min = 1, .max = kMostDrawn});
  add_wafer_output_options(*command, options->output);
  command->callback([command, options] { run_kv(*command, *options); });
}

}  // namespace heddle
