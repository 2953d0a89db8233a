// The attention block of a decoding step in one launch: RMSNorm, QKV projection, attention over the paged KV cache and
// output projection (ClusterFusion, Alg. 3, "SplitToken"; Alg. 5, "SplitHead", as a variant). For token t, the only new one of its sequence,
//   z     = residual[t] + deltas[0][t] + ... + deltas[num_deltas - 1][t]      -> new_residual[t]
//   x     = round(z / sqrt(mean(z^2) + eps) * norm)
//   q,k,v = x Wqkv^T + bias; q and k normalised head by head where there are qk norms, then rotated (rope.h)
//   k, v  -> the token's slot of the cache, rounded to its dtype
//   a     = attention(q, keys up to the token's own) (attention.h), rounded to the weights' dtype
//   partials[0][t] + ... + partials[num_partials - 1][t] = a Wo^T + bias
//
// Rounding is to the weights' dtype, which is the cache's, too. All sums are in float32 in an order that depends on
// shapes, mapping and context lengths alone, so a call repeats bit for bit.
//
// A unit is a KV head and some of its query heads; decode_block_plan.h says which cluster block does what. What blocks of
// a cluster exchange goes through distributed shared memory: sums of squares, x, q, k and v, partial attention; by
// SplitHead, which takes no qk norms, scores and outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "fused/decode_block_plan.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

inline constexpr int kMostBlockPartials = 8;
inline constexpr std::int64_t kMostBlockTokens = 16;

// What lies between two points in time of a block.
enum class DecodeBlockPhase : std::uint8_t {
  start,
  normalize,
  project,
  gather,
  heads,
  attend,
  merge,
  project_out,
  sum
};
inline constexpr int kBlockPhases = 9;

struct DecodeBlockParams {
  Tensor residual;  // [num_tokens, hidden], float32
  Tensor deltas;    // [num_deltas * num_tokens, hidden], float32 or the weights' dtype; data null: none
  int num_deltas = 0;
  Tensor new_residual;          // [num_tokens, hidden], float32; does not overlap `residual`, which all clusters read
  const float* norm = nullptr;  // [hidden]
  float eps = 0;
  Weight qkv;                               // [(num_heads + 2 * kv.num_kv_heads) * head_dim, hidden]
  const float* query_norm = nullptr;        // [head_dim]; null: none
  const float* key_norm = nullptr;          // [head_dim]; null: none
  const std::int32_t* positions = nullptr;  // [num_tokens]
  const float* inv_freq = nullptr;          // [head_dim / 2]
  float rope_scale = 1;
  PagedKv kv;
  PagedSequences sequences;  // one new token each
  int num_heads = 0;
  float scale = 0;
  int window = 0;   // 0: none
  Weight output;    // [hidden, num_heads * head_dim]
  Tensor partials;  // [num_partials * num_tokens, hidden], float32
  int num_partials = 1;
  DecodeBlockMapping mapping;
  void* scratch = nullptr;  // decode_block_scratch_bytes(), zeroed once before the first call; each call leaves its
                            // counters zeroed. Calls of other numbers of tokens and mappings may have the same
  std::size_t scratch_bytes = 0;
  // On a GPU, of its memory, [blocks, kBlockPhases]: where each block leaves the cycles from its start to the end of each
  // phase (DecodeBlockPhase). Null: nowhere.
  std::uint64_t* times = nullptr;
};

// The shape of a call.
DecodeBlockShape shape_of(const DecodeBlockParams& params);

// Why decode_block() does not take this shape on a device of that kind, for people: "head_dim is 96, the fused block
// takes 64 and 128". Empty: it does.
std::string why_not_fused(const DecodeBlockShape& shape, DType weights, DeviceKind device);

// The same, and why this device cannot run it, of which a call has `num_sms`: "no cluster of 16 blocks fits the GPU". It
// may ask the driver, so it is for when a kernel is chosen.
std::string why_not_fused_on(const DecodeBlockShape& shape, DType weights, Device device, int num_sms);

std::size_t decode_block_scratch_bytes(const DecodeBlockShape& shape);

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit and why_not_fused() is empty; contents of
// `sequences` are a precondition (paged_kv.h).
void decode_block(const DecodeBlockParams& params, const Lane& lane);

}  // namespace heddle
