// KV-cache write: stores this step's keys and values in their slots, rounded to the cache's dtype (nearest, ties to
// even). Where the cache is one of several ranks', it stores those of its own positions (PagedKv::has).
#pragma once

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct KvWriteParams {
  Tensor k;  // [num_tokens, num_kv_heads * head_dim], float32; on a GPU bfloat16 or float16, too
  Tensor v;  // as k
  PagedKv kv;
  PagedSequences sequences;
};

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes and dtypes fit; contents of `sequences` are a
// precondition (paged_kv.h). No slot may be written twice in one step.
void kv_write(const KvWriteParams& params, const Lane& lane);

}  // namespace heddle
