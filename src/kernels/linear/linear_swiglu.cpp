#include "kernels/linear/linear_swiglu.h"

#include "base/device.h"
#include "device/free_cluster.h"
#include "kernels/dry_run.h"
#include "kernels/linear/linear_sm90_batch.h"
#include "kernels/linear/linear_sm90_stream.h"
#include "kernels/linear/linear_swiglu_sm90.h"
#include "kernels/rows/swiglu.h"

namespace heddle {
namespace {

enum class Fusion { none, stream, batch, tiles };

Fusion fusion_of(const LinearSwigluParams& params, Device device) {
  if constexpr (kHaveCuda)
    if (device.kind == DeviceKind::cuda) {
      if (is_for_swiglu_stream(params)) return Fusion::stream;
      if (is_for_swiglu_batch(params)) return Fusion::batch;
      if (is_for_swiglu_tiles(params)) return Fusion::tiles;
    }
  return Fusion::none;
}

}  // namespace

bool is_fused(const LinearSwigluParams& params, Device device) {
  return fusion_of(params, device) != Fusion::none;
}

void linear_swiglu(const LinearSwigluParams& params, const Lane& lane) {
  const SwigluParams gate{.gate_up = params.gate_up.y, .y = params.y};
  require_linear(params.gate_up, lane);
  require_swiglu(gate, lane);
  if (params.y.rows == 0) return;
  const Fusion fusion = fusion_of(params, lane.stream.device());
  if (fusion != Fusion::none && recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (fusion == Fusion::stream) return linear_swiglu_stream(params, lane);
    if (fusion == Fusion::batch) return linear_swiglu_batch(params, lane);
    if (fusion == Fusion::tiles && hold_a_pair(lane.num_sms)) return linear_swiglu_tiles(params, lane);
  }
  linear(params.gate_up, lane);
  swiglu(gate, lane);
}

}  // namespace heddle
