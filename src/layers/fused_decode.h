// A decode step whose attention, with its norm and its projections, might be one operator, and what speaks against that
// whatever the kind of attention.
#pragma once

#include <string>

#include "base/dtype.h"
#include "layers/compute.h"
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

}  // namespace heddle
