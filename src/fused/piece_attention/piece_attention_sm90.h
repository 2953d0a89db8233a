// piece_attention() on a Hopper GPU (piece_attention_sm90.cu).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fused/piece_attention/piece_attention.h"

namespace heddle {

// Why the kernel does not take these pieces; empty: it does.
std::string why_no_piece_kernel(const PieceShape& shape, const std::vector<QueryPiece>& queries,
                                const std::vector<KeyValuePiece>& keys_values);

// What the kernel reads of a layout: tensor maps, addresses and the first tile of each query piece; and counters, which it
// leaves at 0. A copy of it lies in the device's memory, aligned to 128 bytes. Precondition: why_no_piece_kernel() is empty.
// Throws Failure where the driver has no tensor maps.
std::vector<std::byte> piece_table_sm90(const PieceLayout& layout);

// Of piece_attention_workspace().
std::size_t piece_attention_workspace_sm90(const PieceShape& shape, Device device);

// One launch, which may be captured in a graph.
void piece_attention_sm90(const PieceAttentionParams& params, const Lane& lane);

}  // namespace heddle
