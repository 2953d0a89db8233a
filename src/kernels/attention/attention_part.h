// How CPU attention is cut: what one call computes at a time, and which keys its rows see. The cut decides what is read
// together, never a result.
#pragma once

#include <algorithm>

#include "base/checked.h"
#include "kernels/attention/attention.h"

namespace heddle {

// Some query heads of one KV head, for consecutive new tokens of one sequence. The pairs (token, head) are the part's
// rows, head fastest, so each key is read once for all of them.
struct AttentionPart {
  int sequence = 0;
  int first_token = 0;  // within the sequence's new tokens
  int num_tokens = 0;
  int kv_head = 0;
  int first_head = 0;
  int num_heads = 0;

  int num_rows() const { return num_tokens * num_heads; }
};

inline constexpr int kMaxRows = 512;                 // per part
inline constexpr int kRowFloats = 32 * kMaxHeadDim;  // queries or outputs of a part: 512 rows up to head_dim 64
inline constexpr int kBlockKeys = 128;               // of the softmax: part of the definition in attention.h
inline constexpr int kTileKeys = 64;                 // a block is processed in whole tiles up to its last token
inline constexpr int kKeyFloats =
    kBlockKeys * 256;  // keys or values that are widened at once; fewer than 128 above head_dim 256

// Whether attention multiplies in bfloat16 (attention.h).
inline bool rounds_products(const AttentionParams& params) {
  return params.y.dtype == DType::bfloat16 && params.kv.dtype == DType::bfloat16;
}

// The row length, padded with zeros to whole groups of lanes.
inline int padded(int head_dim) {
  return round_up(head_dim, 16);
}

// The most rows of a part.
inline int max_rows(int head_dim) {
  return std::min(kMaxRows, kRowFloats / padded(head_dim));
}

// Keys of a block that are widened at once, a multiple of 16.
inline int keys_at_once(int head_dim) {
  return std::min(kBlockKeys, kKeyFloats / padded(head_dim) / 16 * 16);
}

// Rows of a part that process a block together, from scores to outputs, so that their scores and outputs stay in the L1
// cache; the block's keys and values come from L2. `slot` is the index of a row's scores.
struct RowGroup {
  int begin, end;

  int slot(int row) const { return row - begin; }
};

inline constexpr int kMaxGroupRows = 128;
static_assert(kRowFloats / (kKeyFloats / kBlockKeys) <= kMaxGroupRows);

// All rows if a block's keys are widened in several rounds, so that each round is widened once.
inline int rows_of_group(int head_dim, int num_rows) {
  constexpr int kTogether = 16;
  return keys_at_once(head_dim) < kBlockKeys ? num_rows : kTogether;
}

// The first key that the token at `position` sees.
inline int first_visible(int position, int window) {
  return window > 0 ? std::max(0, position - window + 1) : 0;
}

// The keys [begin, end) that a token sees, of `num_keys` keys, counted from `first_key`. Both ends grow from token to
// token.
struct Visible {
  int begin, end;

  bool any() const { return begin < end; }
};

inline Visible visible_keys(int position, int window, int first_key, int num_keys) {
  return {std::clamp(first_visible(position, window) - first_key, 0, num_keys),
          std::clamp(position + 1 - first_key, 0, num_keys)};
}

// The same by the places of keys in a cache, which may be one of several ranks'.
inline Visible visible_places(const PagedKv& kv, int position, int window, int first_place, int num_places) {
  if (kv.shard.ranks == 1) return visible_keys(position, window, first_place, num_places);
  return {std::clamp(kv.count(first_visible(position, window)) - first_place, 0, num_places),
          std::clamp(kv.count(position + 1) - first_place, 0, num_places)};
}

// Calls use(row, token of the part) for the rows of a group in order.
template <class Use>
void for_each_row(const AttentionPart& part, const RowGroup& rows, const Use& use) {
  int token = rows.begin / part.num_heads, head = rows.begin % part.num_heads;
  for (int row = rows.begin; row < rows.end; ++row) {
    use(row, token);
    if (++head < part.num_heads) continue;
    head = 0;
    ++token;
  }
}

}  // namespace heddle
