// latent_block on a GPU. latent_block.h has what it does; its arguments are checked there.
#pragma once

#include <string>

#include "fused/latent_block/latent_block.h"

namespace heddle {

// Beyond what holds for every device. Whether this GPU runs all clusters at once is latent_block_clusters()'s.
std::string why_not_fused_sm90(const LatentBlockShape& shape, DType weights);

// How many clusters of that shape the device runs at once; 0: none. Where blocks meet, it takes as many as units.
int latent_block_clusters(const LatentBlockShape& shape, DType weights, Device device);

void latent_block_sm90(const LatentBlockParams& params, const Lane& lane);

}  // namespace heddle
