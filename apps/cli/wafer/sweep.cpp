// heddle wafer sweep: predictions over sides of a mesh and memories of a core, as a table, CSV or JSON.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/number_option.h"
#include "cli/wafer/cells.h"
#include "cli/wafer/report.h"
#include "cli/wafer/wafer.h"
#include "wafer/cost/wafer_predict.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr int kMostSide = 65535, kMostRows = 100000;

struct SweepOptions {
  WaferOutput output;
  std::string model;
  std::string phase = "decode", method = "waferllm", sync = "dataflow";
  std::int64_t context = 4096;
  int from = 0, to = 0, step = 30, phases = 2;
  std::vector<double> sram_times{1};
};

const char* const kColumns[] = {
    "side",    "sram_bytes",           "tokens_per_s", "low",  "high", "cycles", "memory_bytes_per_core",
    "regions", "regions_side_by_side", "idle_share",   "error"};
// Bases as columns, by the key of "basis" in JSON: of rate and cycles, low and high, memory and regions and what is idle.
struct BasisColumn {
  const char *name, *key;
};
constexpr BasisColumn kBasisColumns[] = {{"basis", "tokens_per_s"},
                                         {"range_basis", "low"},
                                         {"memory_basis", "memory_bytes_per_core"},
                                         {"area_basis", "regions_side_by_side"}};

std::string cell_text(const ordered_json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : fmt::format("{:.6g}", value.get<double>());
}

ordered_json row_of(const SweepOptions& options, PlmrDevice device, const NamedWaferModel& model, int side,
                    double times) {
  device.sram_bytes.value *= times;
  ordered_json row{{"side", side}, {"sram_bytes", device.sram_bytes.value}};
  const bool decodes = options.phase == "decode";
  try {
    const WaferWork work{.phase = decodes ? WaferPhase::decode : WaferPhase::prefill,
                         .prefill_mesh = {side, side},
                         .decode_mesh = {side, side},
                         .context = options.context,
                         .method = wafer_method(options.method),
                         .all_reduce = {.phases = options.phases, .sync = wafer_sync(options.sync)}};
    const WaferPrediction p = predict_wafer(device, model.sizes, work);
    row.update({{"tokens_per_s", p.tokens_per_second},
                {"low", p.range.low},
                {"high", p.range.high},
                {"cycles", p.cost.cycles()},
                {"memory_bytes_per_core", p.cost.memory_bytes},
                {"regions", p.regions},
                {"regions_side_by_side", p.room.side_by_side},
                {"idle_share", 1 - 1.0 / std::max(p.regions, 1)}});
    ordered_json basis = basis_json(device, work, p, basis_of_rate(device, model.name, work, p));
    basis["low"] = basis["high"] = basis["range"];
    basis["idle_share"] = basis["regions"];
    for (const char* column : kColumns)
      if (basis.contains(column)) row["basis"][column] = basis[column];
  } catch (const InputError& error) {
    row["error"] = error.what();
  }
  return row;
}

void run_sweep(const CLI::App& command, const SweepOptions& options) {
  const NamedWaferModel model = open_wafer_model(options.model);
  const PlmrDevice device = open_device(options.output);
  for (const char* option : {"--sync", "--k"})
    if (options.method != "waferllm" && command.count(option) > 0)
      throw_error<InputError>("{} is an option of WaferLLM's programs; --method is {}", option, options.method);
  if (options.phase == "prefill" && command.count("--k") > 0) throw_error<InputError>("--k is of decode");
  if (options.to < options.from) throw_error<InputError>("--to {} is less than --from {}", options.to, options.from);
  if (const std::int64_t rows = (std::int64_t{options.to} - options.from) / options.step + 1;
      rows * std::ssize(options.sram_times) > kMostRows)
    throw_error<InputError>("{} sides and {} memories are more than {} rows; give a larger --step", rows,
                            options.sram_times.size(), kMostRows);
  ordered_json object{{"model", model.name},      {"device", device.name},      {"phase", options.phase},
                      {"method", options.method}, {"context", options.context}, {"sync", nullptr},
                      {"phases", nullptr}};
  if (options.method == "waferllm") object["sync"] = options.sync;
  if (options.method == "waferllm" && options.phase == "decode") object["phases"] = options.phases;
  ordered_json rows = ordered_json::array();
  // What all rows have in common is in the rows of CSV alone: a file is told from another's by nothing else.
  std::vector<std::vector<std::string>> table(1);
  std::vector<std::string> common;
  for (const auto& [name, value] : object.items()) {
    if (!options.output.csv) break;
    table[0].push_back(name);
    common.push_back(cell_text(value));
  }
  table[0].insert(table[0].end(), std::begin(kColumns), std::end(kColumns));
  for (const BasisColumn& column : kBasisColumns) table[0].emplace_back(column.name);
  for (const double times : options.sram_times)
    for (int side = options.from; side <= options.to; side += options.step) {
      rows.push_back(row_of(options, device, model, side, times));
      std::vector<std::string> cells = common;
      for (const char* column : kColumns) cells.push_back(cell_text(rows.back().value(column, ordered_json())));
      const ordered_json bases = rows.back().value("basis", ordered_json::object());
      for (const BasisColumn& column : kBasisColumns) cells.push_back(bases.value(column.key, ""));
      table.push_back(std::move(cells));
    }
  for (const char* name : {"sync", "phases"})
    if (object[name].is_null()) object.erase(name);
  object["rows"] = std::move(rows);
  write_wafer_table(options.output, device, std::move(object), table);
}

}  // namespace

void add_wafer_sweep(CLI::App& wafer) {
  const auto options = std::make_shared<SweepOptions>();
  CLI::App* command = wafer.add_subcommand("sweep", "Predictions over the sides of a mesh and the memory of a core");
  command->add_option("-m,--model,model", options->model, "NAME or config.json")->required()->type_name("NAME|FILE");
  command->add_option("--phase", options->phase, "decode (default) or prefill")
      ->check(CLI::IsMember({"decode", "prefill"}))
      ->type_name("NAME");
  command->add_option("--method", options->method, "waferllm (default), t10 or ladder")
      ->check(CLI::IsMember({"waferllm", "t10", "ladder"}))
      ->type_name("NAME");
  command
      ->add_option("--sync", options->sync, "How a step of all cores begins: dataflow (default), rendezvous, barrier")
      ->check(CLI::IsMember({"dataflow", "rendezvous", "barrier"}))
      ->type_name("NAME");
  add_number_option<int>(*command, "--k", options->phases, "Phases of decode's K-tree; default 2",
                         {.min = 1, .max = 32});
  add_number_option<std::int64_t>(*command, "--context", options->context, "Tokens of the context; default 4096",
                                  {.min = 1, .max = 1 << 24});
  add_number_option<int>(*command, "--from", options->from, "The least side", {.min = 3, .max = kMostSide})->required();
  add_number_option<int>(*command, "--to", options->to, "The largest side", {.min = 3, .max = kMostSide})->required();
  add_number_option<int>(*command, "--step", options->step, "From one side to the next; default 30",
                         {.min = 1, .max = kMostSide});
  command
      ->add_option("--sram-times", options->sram_times,
                   "A core's memory as multiples of the device's, as 1,2,3,4,5,6; default 1")
      ->delimiter(',')
      ->check(CLI::Range(0.01, 1e6));
  add_csv_option(*command, options->output);
  add_wafer_output_options(*command, options->output);
  command->callback([command, options] { run_sweep(*command, *options); });
}

}  // namespace heddle
