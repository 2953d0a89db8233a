// grouped_linear and grouped_swiglu on a GPU for groups of few rows, where reading the weights takes all of the time.
#pragma once

#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouped_swiglu.h"

namespace heddle {

// Whether the kernel takes these shapes, dtypes and alignments, and groups have few rows on average.
bool grouped_few_takes(const GroupedLinearParams& params);
bool grouped_swiglu_few_takes(const GroupedSwigluParams& params);

// Whether the kernel that takes everything is to be preferred: few rows on average of matrices as large as Mixtral's, where
// it measured 3.3 TB/s on an H200 and this one 2.7 (docs/notes/experts.md).
bool plain_is_faster(const GroupedLinearParams& params);

// grouped_linear.h and grouped_swiglu.h have what they do; their arguments are checked there.
void grouped_few(const GroupedLinearParams& params, const Lane& lane);
void grouped_swiglu_few(const GroupedSwigluParams& params, const Lane& lane);

}  // namespace heddle
