// grouped_linear and grouped_swiglu on a GPU for groups of many rows: tensor cores (linear/linear_sm90_tiles.cuh).
#pragma once

#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouped_swiglu.h"

namespace heddle {

// Whether the kernel takes these dtypes and alignments.
bool grouped_tiles_takes(const GroupedLinearParams& params);
bool grouped_swiglu_tiles_takes(const GroupedSwigluParams& params);

// grouped_linear.h and grouped_swiglu.h have what they do; their arguments are checked there.
void grouped_tiles(const GroupedLinearParams& params, const Lane& lane);
void grouped_swiglu_tiles(const GroupedSwigluParams& params, const Lane& lane);

}  // namespace heddle
