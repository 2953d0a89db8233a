// The slot of a token's keys and values, in kernels.
#pragma once

#include <cstdint>

#include "kernels/attention/paged_kv.h"

namespace heddle {

inline constexpr std::int64_t kNoSlot = -1;  // of a token that another rank has

// The index of the first element of the token's slot at head 0, or kNoSlot; all threads of a warp call it.
__device__ inline std::int64_t slot_of(const PagedSequences& sequences, const PagedKv& kv, int token) {
  // The token's sequence is the number of sequences that end before it.
  int sequence = 0;
  for (int first = 0; first < sequences.num_sequences; first += 32) {
    const int i = first + static_cast<int>(threadIdx.x % 32);
    sequence += __popc(__ballot_sync(~0u, i < sequences.num_sequences && sequences.query_start[i + 1] <= token));
  }
  const int position = sequences.context_len[sequence] - (sequences.query_start[sequence + 1] - token);
  if (!kv.has(position)) return kNoSlot;
  const int place = kv.place(position);
  const std::int64_t page =
      sequences.page_table[std::int64_t{sequence} * sequences.page_table_stride + place / kv.page_size];
  return (page * kv.num_kv_heads * kv.page_size + place % kv.page_size) * kv.head_dim;
}

}  // namespace heddle
