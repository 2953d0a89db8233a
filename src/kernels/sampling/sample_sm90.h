// sample on a GPU. sample.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/sampling/sample.h"

namespace heddle {

void sample_sm90(const SampleParams& params, const Lane& lane);

}  // namespace heddle
