// latent_kv_write on a GPU. latent_kv_write.h has what it does; its arguments are checked there.
#pragma once

#include "kernels/attention/latent_kv_write.h"

namespace heddle {

void latent_kv_write_sm90(const LatentKvWriteParams& params, const Lane& lane);

}  // namespace heddle
