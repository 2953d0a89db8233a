#include "kernels/linear/linear_swiglu.h"

#include "base/device.h"
#include "device/free_pair.h"
#include "kernels/dry_run.h"
#include "kernels/linear/linear_sm90_stream.h"
#include "kernels/linear/linear_swiglu_sm90.h"
#include "kernels/rows/swiglu.h"

namespace heddle {
namespace {

enum class Way { apart, stream, tiles };

Way way_of(const LinearSwigluParams& params, Device device) {
  if constexpr (kHaveCuda)
    if (device.kind == DeviceKind::cuda) {
      if (is_for_swiglu_stream(params)) return Way::stream;
      if (is_for_swiglu_tiles(params)) return Way::tiles;
    }
  return Way::apart;
}

}  // namespace

bool gates_at_once(const LinearSwigluParams& params, Device device) {
  return way_of(params, device) != Way::apart;
}

void linear_swiglu(const LinearSwigluParams& params, const Lane& lane) {
  const SwigluParams gate{.gate_up = params.gate_up.y, .y = params.y};
  require_linear(params.gate_up, lane);
  require_swiglu(gate, lane);
  if (params.y.rows == 0) return;
  const Way way = way_of(params, lane.stream.device());
  if (way != Way::apart && recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (way == Way::stream) return linear_swiglu_stream(params, lane);
    if (way == Way::tiles && hold_a_pair(lane.num_sms)) return linear_swiglu_tiles(params, lane);
  }
  linear(params.gate_up, lane);
  swiglu(gate, lane);
}

}  // namespace heddle
