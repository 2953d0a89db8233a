#include "cli/wafer/baseline_runs.h"

#include <fmt/format.h>

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
      const double layer = mesh::count_baseline_layer(device, model, mesh, kContext, row.phase, row.method);
      runs.push_back({.table = prefills ? 3 : 4,
                      .row = fmt::format("{} {}", row.model, row.method == WaferMethod::t10 ? "T10" : "Ladder"),
                      .side = row.sides[i],
                      .published = row.tokens_per_second[i],
                      .fitted = fitted,
                      .run = fitted * fitted_layer / layer});
    }
  }
  return runs;
}

}  // namespace heddle
