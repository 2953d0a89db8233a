// split_heads() and join_heads() on a GPU (head_groups_sm90.cu).
#pragma once

#include "fused/piece_attention/head_groups.h"

namespace heddle {

inline constexpr int kMostGpuHeadGroups = 128;

enum class HeadGroupCopy : std::uint8_t { split, join };

// `tokens` is written where heads are joined.
void copy_head_groups_sm90(HeadGroupCopy which, void* tokens, const HeadGroups& groups, const Lane& lane);

}  // namespace heddle
