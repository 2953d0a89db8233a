// decode_block on a GPU. decode_block.h has what it does; its arguments are checked there.
#pragma once

#include <string>

#include "fused/decode_block.h"

namespace heddle {

// Beyond what holds for every device. Whether this GPU can schedule the cluster is asked when a kernel is chosen
// (decode_block_clusters()).
std::string why_not_fused_sm90(const DecodeBlockShape& shape, DType weights);

// How many clusters of that shape the device runs at once; 0: none.
int decode_block_clusters(const DecodeBlockShape& shape, DType weights, Device device);

// What decode_stream_plan.h's blocks keep in global memory.
inline constexpr int kStreamCounters = 4;  // of the grid, before those of items
struct DecodeStreamScratch {
  std::uint32_t* counters;  // zero between calls: kStreamCounters, then [tokens][kv_heads]
  float* qkv;               // [tokens][(heads + 2 * kv_heads) * head_dim]
  float* parts;             // [blocks][2][heads of an item][head_dim + 4]
  void* attended;           // [tokens][heads * head_dim], of the weights' dtype
};
DecodeStreamScratch stream_scratch_of(const DecodeBlockParams& params);

// The same for mapping.streamed_blocks > 0.
std::string why_not_streamed_sm90(const DecodeBlockShape& shape, DType weights);
void decode_stream_sm90(const DecodeBlockParams& params, const Lane& lane);

// The same for SplitHead.
std::string why_not_split_sm90(const DecodeBlockShape& shape, DType weights);
int decode_head_clusters(const DecodeBlockShape& shape, DType weights, Device device);
void decode_head_sm90(const DecodeBlockParams& params, const Lane& lane);

void decode_block_sm90(const DecodeBlockParams& params, const Lane& lane);

}  // namespace heddle
