// Causal attention with keys and values of every head (expanded), for the new tokens of some sequences: how latent
// attention computes long chunks (DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1.2, equations 9 to 18). Keys and values of a
// long sequence come in pieces of consecutive positions, and the state of the softmax is carried from piece to piece, so that
// memory does not grow with the context.
//
// Keys of a head are nope_dim elements of its own, then rope_dim elements that all heads share. The token at position p sees
// the keys of the piece at positions up to p. With the dot product of README.md and blocks of 128 keys from the piece's
// beginning on, each block does what one of attention() does (attention.h): s[j] = dot(q, k[j]) * scale, then (m, l, o). So a
// piece that begins at a multiple of 128 gives the same bits whether it is computed by itself or with its neighbours.
//
// On a GPU (expanded_attention_sm90.cu) products are of 16 bits and sums of float32, as kernels/README.md defines for its
// prefill. m is times log2(e) there, and may lie up to 8 below the largest score: l and o are relative to what it is.
// Other pieces give other roundings of float32; the same call repeats its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/device.h"
#include "base/dtype.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/expanded_sequences.h"

namespace heddle {

inline constexpr int kMaxExpandedDim = 256;  // of a head's key, and of its value

// The widths of a head.
struct ExpandedHead {
  int nope_dim = 0;  // of its key, its own
  int rope_dim = 0;  // of its key, shared
  int value_dim = 0;

  friend constexpr bool operator==(const ExpandedHead&, const ExpandedHead&) = default;
};

// Why expanded_attention() does not compute such heads on this device, with q, keys and values of this dtype; empty: it
// does. On the CPU all of up to kMaxExpandedDim, in float32; on a GPU those of DeepSeek-V2, in 16 bits.
std::string why_not_expanded(const ExpandedHead& head, DType dtype, Device device);

struct ExpandedAttentionParams {
  Tensor q;  // [num_tokens, num_heads * (nope_dim + rope_dim)], float32; on a GPU bfloat16 or float16
  // [num_key_rows, num_heads * (nope_dim + value_dim)], as q: of each head its part of the key, its value. Rows between
  // sequences are finite.
  Tensor keys_values;
  Tensor shared_keys;  // [num_key_rows, rope_dim], float32 or bfloat16; on a GPU as q
  Tensor y;            // [num_tokens, num_heads * value_dim], as q; overlaps nothing
  ExpandedSequences sequences;
  int num_heads = 0;
  int value_dim = 0;
  float scale = 0;    // of the scores
  int first_key = 0;  // the position of each sequence's first key; a multiple of kExpandedBlockKeys
  // The state [expanded_state_floats()] that earlier pieces left; null: there is none.
  const float* before = nullptr;
  // Where the state goes, which may be where it was; null: y is written, from all pieces so far.
  float* after = nullptr;
};

// o [num_heads, num_tokens, value_dim], on a GPU in an order of the kernel's own, then m [num_heads, num_tokens], then l.
constexpr std::size_t expanded_state_floats(std::int64_t num_tokens, int num_heads, int value_dim) {
  return static_cast<std::size_t>(num_tokens) * static_cast<std::size_t>(num_heads) *
         (static_cast<std::size_t>(value_dim) + 2);
}

// Enqueues on the lane's stream. Each row must see a key of the first piece, so that begins at position 0. Without a state
// there may be several sequences. Throws
// InvalidArgument unless shapes and dtypes fit, and on a GPU rows are aligned to 16 bytes and scale > 0.
void expanded_attention(const ExpandedAttentionParams& params, const Lane& lane);

}  // namespace heddle
