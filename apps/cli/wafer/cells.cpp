#include "cli/wafer/cells.h"

#include <algorithm>
#include <optional>

#include "cli/wafer/wafer.h"
#include "wafer/cost/wafer_published.h"

namespace heddle {
namespace {

constexpr std::int64_t kCellContext = 4096;

bool is_square(WaferMesh mesh, int side) {
  return mesh.width == side && mesh.height == side;
}

bool is_same(WaferMesh a, WaferMesh b) {
  return a.width == b.width && a.height == b.height;
}

// The published rate; nothing if the paper has none.
std::optional<double> published_rate(const std::string& model, const WaferWork& work) {
  if (work.phase == WaferPhase::end_to_end) {
    const WaferModelMeshes meshes = default_meshes(model);
    const bool moves = work.method == WaferMethod::waferllm;
    if (!is_same(work.prefill_mesh, meshes.prefill) ||
        !is_same(work.decode_mesh, moves ? meshes.decode : meshes.prefill))
      return std::nullopt;
    for (const published::EndToEnd& row : published::kEndToEnd)
      for (int i = 0; i < 4; ++i)
        if (row.model == model && row.method == work.method && published::kEndToEndLengths[i][0] == work.context &&
            published::kEndToEndLengths[i][1] == work.output)
          return row.tokens_per_second[i];
    return std::nullopt;
  }
  const WaferMesh mesh = work.phase == WaferPhase::prefill ? work.prefill_mesh : work.decode_mesh;
  if (work.context != kCellContext || work.output > 1) return std::nullopt;
  for (const published::Throughput& row : published::kThroughputs)
    for (int i = 0; i < 3; ++i)
      if (row.model == model && row.phase == work.phase && row.method == work.method && is_square(mesh, row.sides[i]))
        return row.tokens_per_second[i];
  return std::nullopt;
}

// As the paper's programs, as far as it says.
bool is_the_papers_program(const WaferWork& work) {
  const AllReduceOptions usual;
  return work.all_reduce.sync == usual.sync && work.all_reduce.phases == usual.phases;
}

}  // namespace

bool has_fitted_constants(const PlmrDevice& device) {
  const PlmrDevice fitted = plmr_preset("wse-2");
  return std::ranges::all_of(plmr_fields(), [&](const PlmrField& field) {
    return (device.*field.constant).value == (fitted.*field.constant).value;
  });
}

Bases basis_of_rate(const PlmrDevice& device, const std::string& model, const WaferWork& work,
                    const WaferPrediction& prediction) {
  const auto cell = is_the_papers_program(work) ? published_rate(model, work) : std::nullopt;
  if (!cell || !has_fitted_constants(device)) return prediction.cost.bases();
  if (*cell == published::kWithheld) return Basis::held_out;
  return work.phase == WaferPhase::end_to_end ? prediction.cost.bases() : Bases(Basis::fitted);
}

}  // namespace heddle
