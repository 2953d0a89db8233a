// latent_append on a GPU. latent_append.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/latent_append.h"

namespace heddle {

void latent_append_sm90(const LatentAppendParams& params, const Lane& lane);

}  // namespace heddle
