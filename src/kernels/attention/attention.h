// Causal attention over the paged cache, for prefill chunks and decode in one batch of unequal lengths.
//
// A token at position p sees the keys f..p of its sequence, its own among them (append them first, kv_append.h): with a
// sliding window f = max(0, p - window + 1), otherwise f = 0. Query head h reads KV head h / (num_heads /
// num_kv_heads). For each query head:
//   s[j] = dot(q, k[j]) * scale                                          the dot product of README.md, over head_dim
//   y    = sum_j exp(s[j] - m) v[j] / sum_j exp(s[j] - m),  j = f..p
// in blocks of 128 keys by position, [0, 128), [128, 256), ..., from the one that holds f: m is the largest score up to
// and including the block, and after a block
//   c = exp(m_before - m),  l = fma(l, c, sum over the block),  o[d] = o[d] * c, then o[d] = fma(exp(s[j] - m),
//   v[j][d], o[d]) for each key in turn; y[d] = o[d] / l.
// In the block's sum a key that is not seen counts 0 in its place. Keys and values before f and beyond p are never part
// of any operation; pages that lie wholly before the f of all of a step's tokens are never read.
//
// Where y and the cache are bfloat16, so are the products: weights are rounded to it where they are multiplied (not in
// l), and queries, as q * (scale * kLog2OfE); so a weight is 2^(s[j] - m). There s[j] is one chain of fma over elements
// 1, 0, 3, 2, ..., instead of the dot product of README.md, and o[d] takes the keys of a block in the order 1, 0, 3, 2,
// ...: pairs, as AVX512-BF16 multiplies them.
//
// On a GPU the same sums in float32, cut otherwise: q and the weights exp(s[j] - m) are rounded to the cache's dtype
// where tensor cores multiply, exp is 2^x of the hardware, keys are split over blocks and merged in a fixed order. The
// same bits on every run of the same step. There a value that is NaN may reach tokens of its own step that come before
// it; what lies in slots without tokens never matters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

inline constexpr int kMaxHeadDim = 1024;  // what the fixed scratch of a thread holds
inline constexpr float kLog2OfE = 1.44269504f;

struct AttentionParams {
  Tensor q;  // [num_tokens, num_heads * head_dim], float32; on a GPU also bfloat16 or float16
  Tensor y;  // likewise; on the CPU float32 or bfloat16; apart from q
  PagedKv kv;
  PagedSequences sequences;
  int num_heads = 0;  // a multiple of kv.num_kv_heads
  float scale = 0;    // on the scores; 1 / sqrt(head_dim) for Llama
  int window = 0;     // keys that a token sees, its own among them; 0: all up to its own
  OlderKeys older_keys = OlderKeys::in_flight;
  void* scratch = nullptr;     // on a GPU, attention_scratch_bytes of its memory; null on the CPU
  const void* plan = nullptr;  // on a GPU, what plan_attention() has left of these sequences, shapes, kv's dtype and
                               // page_size and window, on a lane of as many SMs; null on the CPU
};

// What a step of so many tokens and sequences needs on a GPU. It is to be zeroed once, before the first call; then
// attention alone uses it, in one stream, for all layers and steps: each call leaves it zeroed.
std::size_t attention_scratch_bytes(int max_tokens, int max_sequences, int num_heads, int head_dim);

struct AttentionPlanParams {
  PagedKv kv;  // of any layer
  PagedSequences sequences;
  std::int64_t num_tokens = 0;
  int num_heads = 0;
  int window = 0;
  OlderKeys older_keys = OlderKeys::in_flight;  // in_place: nor does any kernel ahead read what `plan` held
  void* plan = nullptr;                         // on a GPU, at a multiple of 16 of its memory; null on the CPU
  std::size_t plan_bytes = 0;                   // at least attention_plan_bytes(), of the step's sequences or of more
};

// What the plan of a step of so many sequences takes on a GPU, whatever it held before.
std::size_t attention_plan_bytes(int max_sequences, int num_kv_heads);

// Enqueues what attention() has in common for all layers of a step that have the same window: on a GPU, which block
// takes which keys, into `plan`; on the CPU, nothing. No kernel enqueued later starts before the plan is written, so
// attention() may read it before kernels ahead have ended. With OlderKeys::in_place it is written beside the kernels
// ahead, if there are any, as in models/llama.cpp. Throws InvalidArgument as attention() does.
void plan_attention(const AttentionPlanParams& params, const Lane& lane);

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit, head_dim <= kMaxHeadDim and window >= 0, and
// on a GPU unless there is a plan, scratch and 1 <= sequences.max_query_len <= num_tokens; contents of `sequences` are
// a precondition (paged_kv.h). On a GPU low-order bits depend on the lane's SMs, and a launch depends on shapes,
// max_query_len and page_table_stride alone, so that a captured step can be replayed with other contexts.
void attention(const AttentionParams& params, const Lane& lane);

}  // namespace heddle
