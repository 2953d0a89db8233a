// Copies cached rows of consecutive positions of one sequence from their pages into a matrix. Latent attention expands them
// to keys and values (expanded_attention.h).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct GatherLatentsParams {
  PagedKv kv;                                // one head, whose keys are read
  const std::int32_t* page_table = nullptr;  // of the sequence, of all its positions
  int first = 0;                             // position
  Tensor
      rows;  // [count, kv.head_dim], float32 or bfloat16, on a GPU float16, too: positions first, first + 1, ..., rounded
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit and the cache is whole (not one of several
// ranks'). That the pages exist is a precondition, as in paged_kv.h.
void gather_latents(const GatherLatentsParams& params, const Lane& lane);

}  // namespace heddle
