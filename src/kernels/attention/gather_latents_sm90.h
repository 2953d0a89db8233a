// gather_latents on a GPU. gather_latents.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/gather_latents.h"

namespace heddle {

void gather_latents_sm90(const GatherLatentsParams& params, const Lane& lane);

}  // namespace heddle
