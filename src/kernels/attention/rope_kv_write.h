// Rotary position embedding of q and k (rope.h) and the KV-cache write of k and v (kv_write.h) in one operator,
// between the QKV GEMM and attention. The bits are those of the two operators: rotated k is rounded to its own dtype,
// then to the cache's.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct RopeKvWriteParams {
  Tensor q;                         // [num_tokens, num_heads * head_dim], float32; on a GPU bfloat16 or float16, too
  Tensor k;                         // [num_tokens, num_kv_heads * head_dim], as q; unspecified afterwards
  Tensor v;                         // as k
  const std::int32_t* positions{};  // [num_tokens]
  const float* inv_freq{};          // [head_dim / 2]
  float scale = 1;                  // on cosine and sine
  PagedKv kv;                       // whose head_dim is even
  PagedSequences sequences;
  OlderKeys older_keys = OlderKeys::in_flight;
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit; contents of `sequences` are a
// precondition (paged_kv.h). No slot may be written twice in one step.
void rope_kv_write(const RopeKvWriteParams& params, const Lane& lane);

}  // namespace heddle
