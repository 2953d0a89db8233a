// How attention is cut: what one call computes at a time, and which keys its rows see. A cut decides what is read
// together, never a result.
#pragma once

#include <algorithm>

#include "base/checked.h"
#include "kernels/attention.h"

namespace heddle {

// Some query heads of one KV head, for some consecutive new tokens of one sequence. The pairs (token, head) are the
// part's rows, head fastest, so that each key is read once for all of them.
struct AttentionPart {
  int sequence = 0;
  int first_token = 0;  // within the sequence's new tokens
  int num_tokens = 0;
  int kv_head = 0;
  int first_head = 0;
  int num_heads = 0;

  int num_rows() const { return num_tokens * num_heads; }
};

inline constexpr int kMaxRows = 512;                 // of a part
inline constexpr int kRowFloats = 32 * kMaxHeadDim;  // queries or outputs of a part: 512 rows up to head_dim 64
inline constexpr int kBlockKeys = 64;                // of the softmax: part of the definition, see attention.h
inline constexpr int kKeyFloats = kBlockKeys * 256;  // widened keys or values at once; fewer than 64 above head_dim 256

// Whether products are of bfloat16, as attention.h says.
inline bool rounds_products(const AttentionParams& params) {
  return params.y.dtype == DType::bfloat16 && params.kv.dtype == DType::bfloat16;
}

// Rows lie padded with zeros to whole groups of lanes.
inline int padded(int head_dim) {
  return round_up(head_dim, 16);
}

// Rows of a part, at most.
inline int max_rows(int head_dim) {
  return std::min(kMaxRows, kRowFloats / padded(head_dim));
}

// Keys of a block that are widened at once, a multiple of 16.
inline int keys_at_once(int head_dim) {
  return std::min(kBlockKeys, kKeyFloats / padded(head_dim) / 16 * 16);
}

// The first key that the token at `position` sees.
inline int first_visible(int position, int window) {
  return window > 0 ? std::max(0, position - window + 1) : 0;
}

// Which of `num_keys` keys from position `first_key` on a row sees: [begin, end), counted from first_key. Both ends
// grow from row to row.
struct Visible {
  int begin, end;
};

inline Visible visible_keys(const AttentionPart& part, int row, int first_position, int window, int first_key,
                            int num_keys) {
  const int position = first_position + row / part.num_heads;
  return {std::clamp(first_visible(position, window) - first_key, 0, num_keys),
          std::clamp(position + 1 - first_key, 0, num_keys)};
}

}  // namespace heddle
