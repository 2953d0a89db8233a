// Copies cached rows of consecutive positions of some sequences from their pages into a matrix. Latent attention expands
// them to keys and values (expanded_attention.h).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/expanded_sequences.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct GatherLatentsParams {
  PagedKv kv;                                // one head, whose keys are read
  const std::int32_t* page_table = nullptr;  // of each sequence, of all its positions
  int page_table_stride = 0;                 // from sequence to sequence
  int first = 0;                             // position
  ExpandedSequences sequences;               // of which num_keys count: positions first, first + 1, ...
  // [num_key_rows, kv.head_dim], float32 or bfloat16, on a GPU float16, too: rounded. Rows between sequences become 0.
  Tensor rows;
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit and the cache is whole (not one of several
// ranks'). That the pages exist is a precondition, as in paged_kv.h.
void gather_latents(const GatherLatentsParams& params, const Lane& lane);

}  // namespace heddle
