#include "cli/wafer/baseline_runs.h"

#include <fmt/format.h>

#include "cli/bench/record.h"
#include "cli/wafer/wafer.h"
#include "wafer/cost/wafer_published.h"
#include "wafer/mesh/baselines.h"

namespace heddle {

std::vector<BaselineRun> baseline_runs(const PlmrDevice& device) {
  constexpr std::int64_t kContext = 4096;
  std::vector<BaselineRun> runs;
  for (const published::Throughput& row : published::kThroughputs) {
    if (row.method == WaferMethod::waferllm || row.tokens_per_second[0] == published::kWithheld) continue;
    const WaferModel model = open_wafer_model(std::string(row.model)).sizes;
    for (int i = 0; i < 3; ++i) {
      const WaferMesh mesh{row.sides[i], row.sides[i]};
      const bool prefills = row.phase == WaferPhase::prefill;
      const double fitted_layer = (prefills ? prefill_layer_cost(device, model, mesh, kContext, row.method)
                                            : decode_layer_cost(device, model, mesh, kContext, row.method))
                                      .cycles();
      const double fitted = predict_wafer(device, model,
                                          {.phase = row.phase,
                                           .prefill_mesh = mesh,
                                           .decode_mesh = mesh,
                                           .context = kContext,
                                           .method = row.method})
                                .tokens_per_second;
      const WaferCost layer = mesh::count_baseline_layer(device, model, mesh, kContext, row.phase, row.method);
      runs.push_back({.table = prefills ? 3 : 4,
                      .row = fmt::format("{} {}", row.model, row.method == WaferMethod::t10 ? "T10" : "Ladder"),
                      .side = row.sides[i],
                      .published = row.tokens_per_second[i],
                      .fitted = fitted,
                      .run = fitted * fitted_layer / layer.cycles(),
                      .layer = layer});
    }
  }
  return runs;
}

double percent_of(const BaselineRun& run, Basis basis) {
  return 100 * run.layer.cycles(basis) / run.layer.cycles();
}

nlohmann::ordered_json json_of(const BaselineRun& run) {
  const std::string basis = text_of(run.layer.bases());
  nlohmann::ordered_json object{{"table", run.table},
                                {"row", run.row},
                                {"side", run.side},
                                {"unit", "tokens/s"},
                                {"published", run.published},
                                {"fitted", run.fitted},
                                {"run", run.run},
                                {"run_over_published", run.run / run.published},
                                {"basis",
                                 {{"published", text_of(Basis::published)},
                                  {"fitted", text_of(Basis::fitted)},
                                  {"run", basis},
                                  {"run_over_published", text_of(run.layer.bases() | Basis::published)}}}};
  for (const Basis part : kLayerBases) {
    const std::string name = text_of(part);
    object["layer_cycles_by_basis"][name] = run.layer.cycles(part);
    object["basis"]["layer_cycles_by_basis"][name] = name;
  }
  return object;
}

std::string text_of(const std::vector<BaselineRun>& runs) {
  std::vector<std::vector<std::string>> rows{{"table", "program", "side", "published", "fitted", "run",
                                              "run / published", "counted %", "analytical %", "fitted %"}};
  for (const BaselineRun& run : runs) {
    rows.push_back({fmt::format("{}", run.table), run.row, fmt::format("{}", run.side),
                    fmt::format("{:.6g}", run.published), fmt::format("{:.4g}", run.fitted),
                    fmt::format("{:.4g}", run.run), fmt::format("{:.3g} x", run.run / run.published)});
    for (const Basis basis : kLayerBases) rows.back().push_back(fmt::format("{:.0f}", percent_of(run, basis)));
  }
  return table_text(rows) +
         "\nOf the run's cycles: counted, hops and words on links (Ladder's on 24 of its steps); analytical, compute "
         "and routing stages,\nand decode's element-wise work: their number times fitted costs; fitted, decode's "
         "residual.\n";
}

}  // namespace heddle
