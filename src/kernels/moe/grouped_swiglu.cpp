#include "kernels/moe/grouped_swiglu.h"

#include "kernels/dry_run.h"
#include "kernels/moe/grouped_few_sm90.h"
#include "kernels/moe/grouped_tiles_sm90.h"
#include "kernels/preconditions.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/swiglu.h"

namespace heddle {

namespace {

enum class GroupedFusion { none, few, tiles };

GroupedFusion grouped_fusion(const GroupedSwigluParams& params, Device device) {
  if constexpr (kHaveCuda)
    if (device.kind == DeviceKind::cuda && !plain_is_faster(params.gate_up)) {
      if (grouped_swiglu_few_takes(params)) return GroupedFusion::few;
      if (grouped_swiglu_tiles_takes(params)) return GroupedFusion::tiles;
    }
  return GroupedFusion::none;
}

}  // namespace

bool is_fused(const GroupedSwigluParams& params, Device device) {
  return grouped_fusion(params, device) != GroupedFusion::none;
}

void grouped_swiglu(const GroupedSwigluParams& params, const Lane& lane) {
  const SwigluParams gate{.gate_up = params.gate_up.y, .y = params.y};
  require_grouped_linear(params.gate_up, lane);
  require_swiglu(gate, lane);
  require_activation(params.x, params.x.rows, params.gate_up.x.columns, "grouped_swiglu", "x",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_array(params.token_of, params.y.rows, "grouped_swiglu", "token_of");
  if (params.y.rows == 0) return;
  const GroupedFusion fusion = grouped_fusion(params, lane.stream.device());
  if (fusion != GroupedFusion::none && recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (fusion == GroupedFusion::few) return grouped_swiglu_few(params, lane);
    if (fusion == GroupedFusion::tiles) return grouped_swiglu_tiles(params, lane);
  }
  gather_rows({.x = params.x, .rows = params.token_of, .y = params.gate_up.x}, lane);
  grouped_linear(params.gate_up, lane);
  swiglu(gate, lane);
}

}  // namespace heddle
