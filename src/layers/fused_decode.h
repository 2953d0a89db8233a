// A decode step whose attention, with its norm and its projections, might be one operator, and what speaks against that
// whatever the kind of attention.
#pragma once

#include <string>

#include "base/dtype.h"
#include "layers/compute.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"
#include "step/step_choices.h"

namespace heddle {

struct FusedDecode {
  DecodeChoice choice;
  int num_tokens = 1;
  int page_size = 0;
  int num_sms = 0;  // of its lane
};

// Why no layer's attention can be one operator whose matrices have the dtype `weights`, for people. Empty: nothing here
// speaks against it.
std::string why_not_in_one(DType weights, const LayerDTypes& dtypes, const Strategy& strategy);

// The operands that DecodeBlockParams and LatentBlockParams have in common: the rows, their norm, who they are, and where
// the new residual and the block's output go. The others are left as they are by default.
template <class Params>
Params fused_operands(const Norm& norm, const Hidden& before, const Hidden& after, const LayerStep& step) {
  Params params;
  params.residual = before.residual;
  params.deltas = before.delta;
  params.num_deltas = before.delta.data == nullptr ? 0 : 1;
  params.new_residual = after.residual;
  params.norm = static_cast<const float*>(norm.weight);
  params.eps = norm.eps;
  params.positions = step.tensors.positions;
  params.sequences = sequences_of(step.tensors);
  params.partials = after.delta;
  params.num_partials = 1;
  return params;
}

}  // namespace heddle
