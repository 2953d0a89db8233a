#include "layers/fused_decode.h"

#include <fmt/format.h>

namespace heddle {

std::string why_not_in_one(DType weights, const LayerDTypes& dtypes, const Strategy& strategy) {
  if (std::string why = strategy.why_not_summed(); !why.empty()) return why;
  if (strategy.attention().shard().ranks > 1) return "ranks divide the keys";
  if (dtypes.activations != weights)
    return fmt::format("it rounds to the weights' dtype, {}, and this model computes in {}", name_of(weights),
                       name_of(dtypes.activations));
  return {};
}

}  // namespace heddle
