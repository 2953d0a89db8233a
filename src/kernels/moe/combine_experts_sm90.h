// combine_experts on a GPU. combine_experts.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/moe/combine_experts.h"

namespace heddle {

void combine_experts_sm90(const CombineExpertsParams& params, const Lane& lane);

}  // namespace heddle
