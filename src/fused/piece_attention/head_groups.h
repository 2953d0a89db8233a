// Copies between a tensor by tokens and head-major pieces of it, one for each group of consecutive heads: line 9 of
// StreamFusion's Algorithm 1, and its inverse. All-to-all then moves whole pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/lane.h"

namespace heddle {

// The places of the pieces, as plain data that a plan makes once. Piece g has heads [g, g + 1) * num_heads / G of G
// groups, and is [batch, num_heads / G, num_tokens, head_dim], contiguous.
struct HeadGroups {
  int batch = 1;
  int num_tokens = 0;
  int num_heads = 0;  // a multiple of the number of groups
  int head_dim = 0;
  DType dtype = DType::float32;
  std::vector<void*> groups;
};

// Both enqueue on the lane's stream and allocate nothing; `groups` outlives the work. `tokens` is
// [batch, num_tokens, num_heads, head_dim], contiguous, and does not overlap the pieces. They throw InvalidArgument when
// shapes do not fit, when an address is null though there are elements, and on a GPU for more than 128 groups.

// groups[g][b][h][t] = tokens[b][t][g * num_heads / G + h]
void split_heads(const void* tokens, const HeadGroups& groups, const Lane& lane);
// tokens[b][t][g * num_heads / G + h] = groups[g][b][h][t]
void join_heads(const HeadGroups& groups, void* tokens, const Lane& lane);

}  // namespace heddle
