// Rotary positions and the cache write of latent attention (DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1), in one
// operator. Rotary position embedding turns pairs of neighbours: with angle, c and s as in rope.h, for i < rope_dim / 2
//   x[2 i], x[2 i + 1] = x[2 i] * c - x[2 i + 1] * s, x[2 i + 1] * c + x[2 i] * s
// The cache is one plane: a row holds the latent and behind it the rotated key that all heads share. So absorbed
// attention is attention() with one KV head, keys of latent_dim + rope_dim elements, and values that are the first
// latent_dim of the same row: kv.keys and kv.values are both the plane. Where the cache is one of several ranks', it
// gets the rows of its own positions (PagedKv::has).
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct LatentKvWriteParams {
  Tensor q;       // [num_tokens, num_heads * (nope_dim + rope_dim)], float32; on a GPU bfloat16 or float16, too
  Tensor latent;  // [num_tokens, latent_dim + rope_dim], as q: the normalized latent, and the key before its rotation
  Tensor query;   // [num_tokens, num_heads * (latent_dim + rope_dim)], as q: each head's last rope_dim columns become
                  // the rotated ones of q, the others stay as they are; or q itself, which is then rotated in place
  const std::int32_t* positions{};  // [num_tokens]
  const float* inv_freq{};          // [rope_dim / 2]
  float scale = 1;                  // on cosine and sine
  int num_heads = 0;
  int rope_dim = 0;  // even
  PagedKv kv;        // one head of latent_dim + rope_dim, whose keys are the plane
  PagedSequences sequences;
  OlderKeys older_keys = OlderKeys::in_flight;

  constexpr std::int64_t query_width() const { return query.columns / num_heads; }  // of a head
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit; contents of `sequences` are a
// precondition (paged_kv.h). No slot may be written twice in one step.
void latent_kv_write(const LatentKvWriteParams& params, const Lane& lane);

}  // namespace heddle
