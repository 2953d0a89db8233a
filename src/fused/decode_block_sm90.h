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

void decode_block_sm90(const DecodeBlockParams& params, const Lane& lane);

}  // namespace heddle
