#include "layers/compute.h"

#include <algorithm>

namespace heddle {

// On a GPU a bfloat16 delta is a third of what add and norm move; the residual that takes it up is float32, so that it
// is rounded once, where transformers rounds the sum, too. float16 would not do: what some models add is beyond its
// range.
LayerDTypes layer_dtypes(DType weights, Device device, Compute compute) {
  const bool on_cpu = device.kind == DeviceKind::cpu;
  const bool widens = compute == Compute::float32 || (on_cpu && weights == DType::float16);
  const DType activations = widens ? DType::float32 : weights;
  const bool narrow_deltas = !on_cpu && activations == DType::bfloat16;
  return {.activations = activations,
          .intermediates = on_cpu ? DType::float32 : activations,
          .deltas = narrow_deltas ? DType::bfloat16 : DType::float32};
}

DType common_dtype(std::span<const Weight> matrices) {
  const DType first = matrices.front().dtype;
  const bool all = std::ranges::all_of(matrices, [&](const Weight& matrix) { return matrix.dtype == first; });
  return all ? first : DType::float32;
}

}  // namespace heddle
