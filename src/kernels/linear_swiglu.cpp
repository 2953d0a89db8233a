#include "kernels/linear_swiglu.h"

#include "base/device.h"
#include "kernels/linear_sm90_stream.h"
#include "kernels/swiglu.h"

namespace heddle {

void linear_swiglu(const LinearSwigluParams& params, Stream& stream) {
  const SwigluParams gate{.gate_up = params.gate_up.y, .y = params.y};
  require_linear(params.gate_up, stream);
  require_swiglu(gate, stream);
  if (params.y.rows == 0) return;
  if constexpr (kHaveCuda)
    if (stream.device().kind == DeviceKind::cuda && is_for_swiglu_stream(params))
      return linear_swiglu_stream(params, stream);
  linear(params.gate_up, stream);
  swiglu(gate, stream);
}

}  // namespace heddle
