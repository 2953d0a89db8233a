// Causal attention over the paged KV cache, for a batch of prefill chunks and decode tokens of any lengths.
//
// A token at position p sees the keys f..p of its sequence, including its own, so kv_write() comes first. With a
// sliding window f = max(0, p - window + 1), otherwise f = 0. Query head h reads KV head h / (num_heads /
// num_kv_heads). With the dot product of README.md,
//   s[j] = dot(q, k[j]) * scale
//   y    = sum_j exp(s[j] - m) v[j] / sum_j exp(s[j] - m),  j = f..p
// The softmax is online, over blocks of 128 keys by position: [0, 128), [128, 256), ..., from the one that holds f on.
// m is the largest score up to and including the block. After a block
//   c = exp(m_before - m),  l = fma(l, c, sum over the block),  o[d] = o[d] * c,
//   then o[d] = fma(exp(s[j] - m), v[j][d], o[d]) for each key in order; at the end y[d] = o[d] / l.
// A masked key counts 0 in the block's sum. Other operations never read keys and values before f or beyond p. Pages
// before the f of all tokens of a step are never read.
//
// Where y and the cache are bfloat16, the CPU multiplies in bfloat16, in an order of its own (README.md, "Softmax").
//
// A GPU sums in float32 in another order: tensor cores multiply q and the weights rounded to the cache's dtype, exp is
// the hardware's 2^x, and keys are split over thread blocks (split-KV) and merged in a fixed order. The same step gives
// the same bits. A NaN value may reach earlier tokens of its own step; slots without tokens never matter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

inline constexpr int kMaxHeadDim = 1024;  // limited by a CPU thread's fixed scratch
inline constexpr float kLog2OfE = 1.44269504f;

// Where attention leaves sums that are not divided yet, for a merge with those of other keys: a unit for each token and KV
// head, [num_tokens, num_kv_heads], in float32. With the group's G = num_heads / num_kv_heads query heads, a unit is
// o [G, value_dim], then m [G], then l [G]: m the largest score, l = sum_j exp(s[j] - m), o = sum_j exp(s[j] - m) v[j].
// Of a token that sees no key m = -infinity, l = 0 and o = 0.
struct AttentionSums {
  std::byte* first = nullptr;   // null: y is written, and no sums
  std::size_t bytes_apart = 0;  // of units; at least bytes()

  static constexpr std::size_t bytes(int group, int value_dim) {
    return static_cast<std::size_t>(group) * (static_cast<std::size_t>(value_dim) + 2) * sizeof(float);
  }

  HEDDLE_HOST_DEVICE float* unit(std::int64_t index) const {
    return reinterpret_cast<float*>(first + static_cast<std::size_t>(index) * bytes_apart);
  }
};

struct AttentionParams {
  Tensor q;  // [num_tokens, num_heads * head_dim], float32; on a GPU also bfloat16 or float16
  Tensor y;  // likewise; on the CPU float32 or bfloat16; does not overlap q
  PagedKv kv;
  PagedSequences sequences;
  int num_heads = 0;  // a multiple of kv.num_kv_heads
  float scale = 0;    // of the scores; 1 / sqrt(head_dim) for Llama
  int window = 0;     // keys that a token sees, including its own; 0: all up to its own
  // Of a head's columns of y, those that somebody reads: the first ones; the others get any numbers or stay as they are.
  // 0: all. Latent attention has values that are the first part of its keys.
  int value_dim = 0;
  OlderKeys older_keys = OlderKeys::in_flight;
  void* scratch = nullptr;     // on a GPU, attention_scratch_bytes() of its memory; null on the CPU
  const void* plan = nullptr;  // on a GPU, what plan_attention() wrote for the same sequences, shapes, kv's dtype and
                               // page_size and window, on a lane of as many SMs; null on the CPU
  // Instead of y, whose dtype still says how the CPU multiplies. Then the cache may be one of several ranks' (kv.shard):
  // each token attends to those of its keys that are in it, on the CPU in blocks of 128 by their places. On a GPU without
  // kv.shard context_len may count the keys of some other part: also none, for a sequence with one new token.
  AttentionSums sums = {};

  // Of a head's sums: value_dim, or all of head_dim.
  HEDDLE_HOST_DEVICE int sum_columns() const { return value_dim > 0 ? value_dim : kv.head_dim; }
};

// The scratch that steps of up to these sizes need on a GPU. Zero it once before the first call. Attention then uses it
// for all layers and steps of one stream; after each call its counters are zero again, the rest holds anything.
std::size_t attention_scratch_bytes(int max_tokens, int max_sequences, int num_heads, int head_dim);

struct AttentionPlanParams {
  PagedKv kv;  // of any layer
  PagedSequences sequences;
  std::int64_t num_tokens = 0;
  int num_heads = 0;
  int window = 0;
  int value_dim = 0;
  OlderKeys older_keys = OlderKeys::in_flight;  // in_place: no kernel ahead reads what `plan` held
  void* plan = nullptr;                         // on a GPU, 16-byte aligned memory of it; null on the CPU
  std::size_t plan_bytes = 0;                   // at least attention_plan_bytes() of the step's sequences, or with
                                                // value_dim latent_plan_bytes() of its tokens and sequences
};

// The size of a plan for up to this many sequences on a GPU. The plan needs no initialization.
std::size_t attention_plan_bytes(int max_sequences, int num_kv_heads);

// The same where value_dim is given.
std::size_t latent_plan_bytes(std::int64_t max_tokens, int max_sequences, int num_heads);

// Enqueues what all layers of a step with the same window share. On a GPU it writes to `plan` which thread block
// processes which keys; on the CPU it does nothing. Kernels enqueued later start after the plan is written, so
// attention() may read it before the kernels ahead have ended. With OlderKeys::in_place it is written concurrently with
// the kernels ahead, as in models/llama.cpp. Throws InvalidArgument as attention() does.
void plan_attention(const AttentionPlanParams& params, const Lane& lane);

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit, head_dim <= kMaxHeadDim and window >= 0, and
// on a GPU unless there is a plan, scratch and 1 <= sequences.max_query_len <= num_tokens; the contents of `sequences`
// are a precondition (paged_kv.h). On a GPU low-order bits depend on the lane's SMs and, of prefill, on how many work
// tiles the step has and on max_context_len. A launch depends only on shapes, max_query_len, max_context_len and
// page_table_stride, so a captured step can be replayed with other context lengths.
void attention(const AttentionParams& params, const Lane& lane);

}  // namespace heddle
