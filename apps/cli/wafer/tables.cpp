// heddle wafer tables: the paper's published figures beside the predictions, cell by cell, the trends of its figures,
// and what each program needs of a core (its figures 6 and 8).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cli/bench/record.h"
#include "cli/wafer/baseline_runs.h"
#include "cli/wafer/cells.h"
#include "cli/wafer/report.h"
#include "cli/wafer/trends.h"
#include "cli/wafer/wafer.h"
#include "wafer/cost/kv_accounting.h"
#include "wafer/cost/wafer_published.h"
#include "wafer/mesh/baselines.h"
#include "wafer/mesh/simulate.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kTableContext = 4096;
constexpr WaferMesh kTableGemvMesh{750, 750};
constexpr int kComplianceLine = 720;

struct Cell {
  int table = 0;
  std::string row, column;
  double published = published::kWithheld;
  double predicted = 0;
  Bases basis{};  // of the prediction
  std::optional<WaferRange> range{};
  std::optional<double> unseen{};  // predicted by the fit that left this cell out
};

// Thirteen of a device's other fits leave one cell out each: those of tables 3, 4 and 6 that are visible, in this order.
class FitsWithoutACell {
 public:
  explicit FitsWithoutACell(const PlmrDevice& device) : device_(device) {}
  // The next cell's prediction by the fit that has not seen it; nothing where the device has no fits.
  template <class Predict>
  std::optional<double> next(Predict&& predict) {
    if (device_.other_fits.empty()) return std::nullopt;
    PlmrDevice other = device_;
    for (std::size_t c = 0; c < kVariedConstants.size(); ++c)
      (other.*kVariedConstants[c]).value = device_.other_fits.at(next_)[c];
    ++next_;
    return predict(other);
  }

 private:
  const PlmrDevice& device_;
  std::size_t next_ = 0;
};

// Of a cell that is `basis` if it is visible.
Bases if_seen(double published, Basis basis) {
  return published == published::kWithheld ? Basis::held_out : basis;
}

const char* name_of(WaferMethod method) {
  return method == WaferMethod::waferllm ? "WaferLLM" : method == WaferMethod::t10 ? "T10" : "Ladder";
}

WaferWork phase_work(WaferPhase phase, int side, WaferMethod method) {
  const WaferMesh mesh{side, side};
  return {.phase = phase, .prefill_mesh = mesh, .decode_mesh = mesh, .context = kTableContext, .method = method};
}

void add_end_to_end(const PlmrDevice& device, std::vector<Cell>& cells) {
  for (const published::EndToEnd& row : published::kEndToEnd) {
    const NamedWaferModel model = open_wafer_model(std::string(row.model));
    const WaferModelMeshes meshes = default_meshes(model.name);
    for (int i = 0; i < 4; ++i) {
      const auto [in, out] = published::kEndToEndLengths[i];
      const WaferWork work{.phase = WaferPhase::end_to_end,
                           .prefill_mesh = meshes.prefill,
                           // The baselines do not move (wafer_baselines.h).
                           .decode_mesh = row.method == WaferMethod::waferllm ? meshes.decode : meshes.prefill,
                           .context = in,
                           .output = out,
                           .method = row.method};
      const WaferPrediction prediction = predict_wafer(device, model.sizes, work);
      cells.push_back({2, fmt::format("{} {}", row.model, name_of(row.method)), fmt::format("{}/{} tokens/s", in, out),
                       row.tokens_per_second[i], prediction.tokens_per_second,
                       basis_of_rate(device, model.name, work, prediction), prediction.range});
    }
  }
}

void add_throughputs(const PlmrDevice& device, FitsWithoutACell& fits, std::vector<Cell>& cells) {
  for (const published::Throughput& row : published::kThroughputs)
    for (int i = 0; i < 3; ++i) {
      const NamedWaferModel model = open_wafer_model(std::string(row.model));
      const WaferWork work = phase_work(row.phase, row.sides[i], row.method);
      const WaferPrediction prediction = predict_wafer(device, model.sizes, work);
      cells.push_back({row.phase == WaferPhase::prefill ? 3 : 4, fmt::format("{} {}", row.model, name_of(row.method)),
                       fmt::format("{} tokens/s", row.sides[i]), row.tokens_per_second[i], prediction.tokens_per_second,
                       basis_of_rate(device, model.name, work, prediction), prediction.range});
      if (row.method == WaferMethod::waferllm && row.tokens_per_second[i] != published::kWithheld)
        cells.back().unseen =
            fits.next([&](const PlmrDevice& other) { return wafer_tokens_per_second(other, model.sizes, work); });
    }
}

void add_capacities(const PlmrDevice& device, std::vector<Cell>& cells) {
  for (const published::Capacity& row : published::kCapacities) {  // regions by cores, as the paper counts
    const NamedWaferModel model = open_wafer_model(std::string(row.model));
    const WaferMesh mesh = default_meshes(model.name).decode;
    const int regions = kv_capacity(device, model.sizes, mesh).regions;
    const KvAccounting kv = kv_accountings(device, model.sizes, mesh, regions).front();  // without a fitted constant
    const Bases basis = if_seen(row.concat_tokens, Basis::analytical);
    cells.push_back({5, std::string(row.model), fmt::format("concat tokens, {} regions", regions), row.concat_tokens,
                     static_cast<double>(kv.concat_tokens), basis});
    cells.push_back({5, std::string(row.model), fmt::format("shift tokens, {} regions", regions), row.shift_tokens,
                     static_cast<double>(kv.shift_tokens), basis});
  }
}

// Energy of the A100s relative to the wafer's: times, and thermal design powers. The A100s' are published, as 37 x 400 W of
// the wafer are; the rest of its 15 kW, and its time, were fitted.
constexpr Bases kEnergyBasis = Basis::fitted | Basis::published;
double energy_ratio(const PlmrDevice& device, double times_faster, int gpus) {
  return times_faster * gpus * published::kGpuWatts / device.power_watts.value;
}

void add_gemvs(const PlmrDevice& device, FitsWithoutACell& fits, std::vector<Cell>& cells) {
  for (const published::Gemv& row : published::kGemvs) {
    const auto ms_on = [&](const PlmrDevice& d) {
      return d.seconds(gemv_cost(d, row.n, row.n, kTableGemvMesh).cycles()) * 1e3;
    };
    const double ms = ms_on(device);
    const std::string name = fmt::format("GEMV {}", row.n);
    const WaferRange range = range_over_constants(device, ms_on, 2 * device.fit_residual);
    cells.push_back({6, name, "ms", row.wafer_ms, ms, if_seen(row.wafer_ms, Basis::fitted), range});
    if (row.wafer_ms != published::kWithheld) cells.back().unseen = fits.next(ms_on);
    for (int i = 0; i < 3; ++i)
      if (row.gpu_ms[i] > 0)
        cells.push_back({6, name, fmt::format("energy of {} A100s over WSE-2", published::kGpus[i]),
                         row.energy_ratio[i], energy_ratio(device, row.gpu_ms[i] / ms, published::kGpus[i]),
                         kEnergyBasis});
  }
}

void add_gpu_comparison(const PlmrDevice& device, std::vector<Cell>& cells) {
  for (const published::GpuThroughput& row : published::kGpuThroughputs) {
    const WaferPrediction prediction = predict_wafer(device, open_wafer_model(std::string(row.model)).sizes,
                                                     phase_work(row.phase, row.side, WaferMethod::waferllm));
    for (int i = 0; i < 3; ++i)
      if (row.tokens_per_second[i] > 0)
        cells.push_back(
            {row.phase == WaferPhase::prefill ? 7 : 8, std::string(row.model),
             fmt::format("energy of {} A100s over WSE-2", published::kGpus[i]), row.energy_ratio[i],
             energy_ratio(device, prediction.tokens_per_second / row.tokens_per_second[i], published::kGpus[i]),
             kEnergyBasis});
  }
}

std::optional<double> error_of(const Cell& cell) {
  if (cell.published == published::kWithheld) return std::nullopt;
  return 100 * (cell.predicted / cell.published - 1);
}

ordered_json json_of(const PlmrDevice& device, const Cell& cell) {
  const std::optional<double> error = error_of(cell);
  ordered_json basis{{"published", text_of(error ? Basis::published : Basis::held_out)},
                     {"predicted", text_of(cell.basis)}};
  if (cell.range) basis["range"] = text_of(device.other_fits.empty() ? Basis::analytical : Basis::fitted);
  if (cell.unseen) basis["predicted_without_it"] = text_of(Basis::analytical);
  if (error) basis["error_percent"] = text_of(cell.basis | Basis::published);
  return {{"table", cell.table},
          {"row", cell.row},
          {"column", cell.column},
          {"published", error ? ordered_json(cell.published) : ordered_json()},
          {"predicted", cell.predicted},
          {"range", cell.range ? ordered_json({cell.range->low, cell.range->high}) : ordered_json()},
          {"predicted_without_it", cell.unseen ? ordered_json(*cell.unseen) : ordered_json()},
          {"error_percent", error ? ordered_json(*error) : ordered_json()},
          {"basis", basis}};
}

std::vector<std::vector<std::string>> table_of(const std::vector<Cell>& cells) {
  std::vector<std::vector<std::string>> rows{
      {"table", "row", "column", "published", "predicted", "range", "without it", "error %", "basis"}};
  for (const Cell& cell : cells) {
    const std::optional<double> error = error_of(cell);
    rows.push_back({fmt::format("{}", cell.table), cell.row, cell.column,
                    error ? fmt::format("{:.6g}", cell.published) : "held out", fmt::format("{:.6g}", cell.predicted),
                    cell.range ? fmt::format("{:.6g} to {:.6g}", cell.range->low, cell.range->high) : "",
                    cell.unseen ? fmt::format("{:.6g}", *cell.unseen) : "", error ? fmt::format("{:+.1f}", *error) : "",
                    text_of(cell.basis)});
  }
  return rows;
}

// All tables in one, for programs that read CSV: cells, then trends as rows of the table "trend", what each program needs of
// a core, and the baselines' runs, with the percentages of their cycles that have each basis. Numbers stand alone in their
// columns, and what is held out is empty; "basis" is of `predicted`, "published_basis" of `published`.
std::vector<std::vector<std::string>> csv_of(const std::vector<Cell>& cells, const std::vector<WaferTrend>& trends,
                                             const std::vector<mesh::ComplianceRow>& programs,
                                             const std::vector<BaselineRun>& runs) {
  std::vector<std::vector<std::string>> rows{{"table", "row", "column", "published", "predicted", "low", "high",
                                              "without_it", "error_percent", "holds", "basis", "published_basis",
                                              "counted_percent", "analytical_percent", "fitted_percent"}};
  const std::string said = text_of(Basis::published);
  for (const Cell& cell : cells) {
    const std::optional<double> error = error_of(cell);
    rows.push_back({fmt::format("{}", cell.table), cell.row, cell.column,
                    error ? fmt::format("{:.6g}", cell.published) : "", fmt::format("{:.6g}", cell.predicted),
                    cell.range ? fmt::format("{:.6g}", cell.range->low) : "",
                    cell.range ? fmt::format("{:.6g}", cell.range->high) : "",
                    cell.unseen ? fmt::format("{:.6g}", *cell.unseen) : "", error ? fmt::format("{:.1f}", *error) : "",
                    "", text_of(cell.basis), text_of(error ? Basis::published : Basis::held_out), "", "", ""});
  }
  for (const WaferTrend& trend : trends)
    rows.push_back({"trend", trend.statement, "", trend.published, trend.predicted, "", "", "", "",
                    trend.holds ? "yes" : "no", text_of(trend.basis), said, "", "", ""});
  for (const mesh::ComplianceRow& program : programs)
    for (const auto& [column, value] : {std::pair{"paths", fmt::format("{}", program.paths)},
                                        {"routes", fmt::format("{}", program.routes)},
                                        {"hops", fmt::format("{:.6g}", program.hops)},
                                        {"stages", fmt::format("{:.6g}", program.stages)},
                                        {"memory_tiles", fmt::format("{:.6g}", program.memory_tiles)},
                                        {"complies", program.complies}})
      rows.push_back({"compliance", program.program, column, "", value, "", "", "", "", "", text_of(Basis::counted), "",
                      "", "", ""});
  for (const BaselineRun& run : runs) {
    rows.push_back({fmt::format("{}", run.table), run.row, fmt::format("{} tokens/s", run.side),
                    fmt::format("{:.6g}", run.published), fmt::format("{:.6g}", run.run), "", "", "",
                    fmt::format("{:.1f}", 100 * (run.run / run.published - 1)), "", text_of(run.layer.bases()), said});
    for (const Basis basis : kLayerBases) rows.back().push_back(fmt::format("{:.1f}", percent_of(run, basis)));
  }
  return rows;
}

// Counted from the schedules and by running the programs, on a mesh with kComplianceLine cores a side.
std::vector<mesh::ComplianceRow> compliance(const PlmrDevice& device) {
  std::vector<mesh::ComplianceRow> rows = mesh::gemm_compliance(device, kComplianceLine);
  for (mesh::ComplianceRow& row : mesh::baseline_compliance(device, kComplianceLine)) rows.push_back(std::move(row));
  for (mesh::ComplianceRow& row : mesh::all_reduce_compliance(device, kComplianceLine)) rows.push_back(std::move(row));
  return rows;
}

ordered_json json_of(const mesh::ComplianceRow& row) {
  return {{"program", row.program},
          {"line", kComplianceLine},
          {"paths", row.paths},
          {"routes", row.routes},
          {"hops", row.hops},
          {"stages", row.stages},
          {"memory_tiles", row.memory_tiles},
          {"complies", row.complies},
          {"basis", text_of(Basis::counted)}};
}

std::string text_of(const std::vector<mesh::ComplianceRow>& programs) {
  std::vector<std::vector<std::string>> rows{
      {fmt::format("on {} cores a side", kComplianceLine), "paths", "routes", "hops", "stages", "tiles", "complies"}};
  for (const mesh::ComplianceRow& row : programs)
    rows.push_back({row.program, fmt::format("{}", row.paths), fmt::format("{}", row.routes),
                    fmt::format("{:.0f}", row.hops), fmt::format("{:.0f}", row.stages),
                    fmt::format("{:.0f}", row.memory_tiles), row.complies});
  return table_text(rows);
}

struct TablesOptions {
  WaferOutput output;
  bool runs = false;
};

void run_tables(const TablesOptions& options) {
  const WaferOutput& output = options.output;
  const PlmrDevice device = open_device(output);
  const double side = std::min(device.mesh_width.value, device.mesh_height.value);
  if (side < kTableGemvMesh.width)
    throw_error<InputError>("the paper's tables are of meshes to {} x {} cores; {} has {} x {}", kTableGemvMesh.width,
                            kTableGemvMesh.height, device.name, device.mesh_width.value, device.mesh_height.value);
  const auto presets = plmr_preset_names();
  if (device.name != "wse-2" && std::ranges::find(presets, device.name) != presets.end())
    throw_error<InputError>(
        "the paper's tables are of wse-2, and no program was measured on {}; heddle wafer predict, gemm and gemv have "
        "its predictions",
        device.name);
  std::vector<Cell> cells;
  add_end_to_end(device, cells);
  FitsWithoutACell fits(device);
  add_throughputs(device, fits, cells);
  add_capacities(device, cells);
  add_gemvs(device, fits, cells);
  add_gpu_comparison(device, cells);
  if (!has_fitted_constants(device))
    for (Cell& cell : cells) {
      if (cell.basis == Basis::fitted) cell.basis = Basis::analytical;
      if (cell.basis == kEnergyBasis) cell.basis = Basis::analytical | Basis::published;
    }
  const std::vector<WaferTrend> trends = wafer_trends(device);

  const std::vector<mesh::ComplianceRow> programs = compliance(device);

  ordered_json object{{"device", device.name},
                      {"cells", ordered_json::array()},
                      {"trends", ordered_json::array()},
                      {"compliance", ordered_json::array()}};
  for (const mesh::ComplianceRow& row : programs) object["compliance"].push_back(json_of(row));
  for (const Cell& cell : cells) object["cells"].push_back(json_of(device, cell));
  std::vector<std::vector<std::string>> rows{{"the paper says", "published", "predicted", "holds", "basis"}};
  for (const WaferTrend& trend : trends) {
    object["trends"].push_back({{"statement", trend.statement},
                                {"published", trend.published},
                                {"predicted", trend.predicted},
                                {"holds", trend.holds},
                                {"basis",
                                 {{"published", text_of(Basis::published)},
                                  {"predicted", text_of(trend.basis)},
                                  {"holds", text_of(trend.basis | Basis::published)}}}});
    rows.push_back(
        {trend.statement, trend.published, trend.predicted, trend.holds ? "yes" : "no", text_of(trend.basis)});
  }
  const std::string note =
      "Energies are thermal design power times time. Errors are of the published unit. \"without it\" is what the fit "
      "to the twelve\n"
      "other cells predicts. Basis, of a prediction. Fitted: constants were fitted to the cell itself; \"+ fitted\": "
      "to "
      "a part of what it\n"
      "predicts, as decode's residual and all that T10's and Ladder's formulas have beside compute. Analytical: a "
      "model "
      "whose constants\n"
      "were fitted to other cells. Held out: analytical, and the cell was kept back from us: \"predicted\" is the "
      "prediction, and\n"
      "\"published\" is empty. Of the 15 kW, 37 x 400 W is published (7.5), 200 W are fitted, and the GPUs' times are "
      "published:\n"
      "energies are \"fitted + published\". Nothing here is simulated: the compliance is counted; --runs has T10's and "
      "Ladder's\n"
      "programs, whose words are counted on links (docs/wafer.md).\n\n";
  const std::string counting =
      "SUMMA's and all-gather's stages are counted as the paper's 5.1 does, a relay a core; their time has one a step, "
      "for\n"
      "relays are set up before, and figure 9 leaves room for no more. The ring's are of reduce-scatter and "
      "all-gather, "
      "2 (P - 1)\n"
      "steps of two hops and a stage; the paper's (2 alpha + beta) N is one of the two.\n"
      "Complies, counted by running each program on two sizes of mesh. L: hops and stages of a GEMM's step are the "
      "same "
      "on both, and\n"
      "stages of an all-reduce grow less than the line. M: the memory of a core is the same on both. R: the paths that "
      "touch the busiest\n"
      "core of both axes, or an all-reduce's routes, are no more than the free routes of a core. P, the use of all "
      "cores, all keep.\n";
  const std::string rule =
      "A sentence holds where the prediction is within 5 % of a mean and 10 % of an \"up to\"; a number that the text "
      "rounds,\n"
      "where it rounds to it (2 to 3 x: each from 1.95 to 3.05; about 17 %: 15 to 19; 166 x: 155 to 177); stable: 0.8 "
      "to 1.25 "
      "x.\n"
      "\"published\" is what the text says. Held out, in a trend: of cells that were kept back from us; only the "
      "averages over four\n"
      "models were fitted to what the text says of them, and those say \"fitted\", too.\n";
  object["notes"] = {note, rule, counting};
  std::string text = table_text(table_of(cells)) + "\n" + note + table_text(rows) + "\n" + rule + "\n" +
                     text_of(programs) + "\n" + counting;
  std::vector<BaselineRun> runs;
  if (options.runs) {
    runs = baseline_runs(device);
    for (const BaselineRun& run : runs) object["runs"].push_back(json_of(run));
    text += "\n" + text_of(runs);
  }
  if (output.csv) return write_wafer_table(output, device, {}, csv_of(cells, trends, programs, runs));
  write_wafer_result(output, device, object, text);
}

}  // namespace

void add_wafer_tables(CLI::App& wafer) {
  const auto options = std::make_shared<TablesOptions>();
  CLI::App* command =
      wafer.add_subcommand("tables", "Tables 2 to 8 and the trends of the WaferLLM paper, published and predicted");
  command->add_flag("--runs", options->runs,
                    "Run T10's and Ladder's programs on simulated links, too, cell by cell; takes a minute");
  add_csv_option(*command, options->output);
  add_wafer_output_options(*command, options->output);
  command->callback([options] { run_tables(*options); });
}

}  // namespace heddle
