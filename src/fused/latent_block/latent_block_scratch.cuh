// What the blocks of latent_block.h leave for each other in global memory.
#pragma once

#include <cstdint>

#include "fused/latent_block/latent_block.h"
#include "fused/unit_outputs.cuh"

namespace heddle {

struct LatentBlockScratch {
  std::uint64_t* barriers;  // of the grid: two barriers and the end; zero between calls
  void* queries;            // [tokens][heads][cached_dim], of the weights' dtype: absorbed
  float* latents;           // [tokens][cached_dim]: the latent and the shared key as the down projection makes them
  float* parts;             // [segments][heads][record]: partial attention
  UnitOutputs outputs;
};
inline constexpr int kLatentBarriers = 3;

// The parts of params.scratch.
LatentBlockScratch scratch_of(const LatentBlockParams& params);

}  // namespace heddle
