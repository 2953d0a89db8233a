// The attention block of a decoding step of a model with latent attention (MLA; DeepSeek-AI, 2024, "DeepSeek-V2", section
// 2.1), its up-projections absorbed, in one launch: RMSNorm, queries and latent, attention over the paged latents, values,
// output projection (ClusterFusion, appendix B.1). For token t, the only new one of its sequence, and head h,
//   z        = residual[t] + deltas[0][t] + ... + deltas[num_deltas - 1][t]      -> new_residual[t]
//   x        = round(z / sqrt(mean(z^2) + eps) * norm)
//   q, c, k  = x Wdown^T: queries of nope_dim + rope_dim a head, the latent, the key that all heads share
//   q[h]     = round(its first nope_dim), round(rotated rope_dim), in pairs of neighbours (latent_kv_write.h)
//   row      = round(c / sqrt(mean(c^2) + latent_eps) * latent_norm), round(rotated k) -> the token's slot of the cache
//   Q[h]     = round(W_UK[h] q[h].nope), q[h].rope
//   a[h]     = sum over the rows of the sequence of softmax(Q[h] row * scale) row.latent, rounded
//   v[h]     = round(W_UV[h] a[h])
//   partials[0][t] + ... + partials[num_partials - 1][t] = v Wo^T
//
// Rounding is to the weights' dtype, which is the cache's, too. All sums are in float32 in an order that depends on
// shapes, mapping and the sequence's own length alone, so a call repeats bit for bit, and neighbours change no bit.
//
// latent_block_plan.h says which block of which cluster does what, in two forms: one in which a tile of latents serves all
// heads, and Alg. 4, where a cluster has a head. latent_block_traffic.h counts what crosses distributed shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "fused/latent_block/latent_block_plan.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

inline constexpr int kMostLatentPartials = 8;
inline constexpr int kMostLatentTokens = 16;

struct LatentBlockParams {
  Tensor residual;  // [num_tokens, hidden], float32
  Tensor deltas;    // [num_deltas * num_tokens, hidden], float32 or the weights' dtype; data null: none
  int num_deltas = 0;
  Tensor new_residual;          // [num_tokens, hidden], float32; does not overlap `residual`, which all clusters read
  const float* norm = nullptr;  // [hidden]
  float eps = 0;
  Weight down;                         // [num_heads * (nope_dim + rope_dim) + latent_dim + rope_dim, hidden]
  const float* latent_norm = nullptr;  // [latent_dim]
  float latent_eps = 0;
  Weight to_latents;                        // W_UK transposed, head after head: [num_heads * latent_dim, nope_dim]
  const std::int32_t* positions = nullptr;  // [num_tokens]
  const float* inv_freq = nullptr;          // [rope_dim / 2]
  float rope_scale = 1;
  PagedKv kv;                // one head of latent_dim + rope_dim, whose keys are the plane of latents
  PagedSequences sequences;  // one new token each
  int num_heads = 0;
  int nope_dim = 0, rope_dim = 0, value_dim = 0;
  float scale = 0;
  Weight from_latents;  // W_UV: [num_heads * value_dim, latent_dim]
  Weight output;        // [hidden, num_heads * value_dim]
  Tensor partials;      // [num_partials * num_tokens, hidden], float32
  int num_partials = 1;
  LatentBlockMapping mapping;
  void* scratch = nullptr;  // latent_block_scratch_bytes(), zeroed once before the first call; each call leaves its
                            // counters zeroed. Calls of other numbers of tokens and mappings may have the same
  std::size_t scratch_bytes = 0;
};

// The shape of a call.
LatentBlockShape shape_of(const LatentBlockParams& params);

// How the CPU computes it: clusters of one block, a head each. The tokens of a sequence are divided as if it were alone.
LatentBlockMapping latent_mapping_of_cpu(int num_heads);

// How a GPU computes it with clusters of that size: one for each head, among which a step's sequences are divided.
LatentBlockMapping latent_mapping_of_gpu(int num_heads, int num_tokens, int cluster);

// Why latent_block() does not take this shape on a device of that kind, for people. Empty: it does.
std::string why_not_fused(const LatentBlockShape& shape, DType weights, DeviceKind device);

// The same of one device, of which a lane has so many SMs: whether all clusters run there at once, too.
std::string why_not_fused_on(const LatentBlockShape& shape, DType weights, Device device, int num_sms);

std::size_t latent_block_scratch_bytes(const LatentBlockShape& shape, DType weights);

// Enqueues on the lane's stream. Throws InvalidArgument unless shapes fit and why_not_fused_on() is empty; contents of
// `sequences` are a precondition (paged_kv.h). The CPU takes clusters of one block in place of larger ones.
void latent_block(const LatentBlockParams& params, const Lane& lane);

}  // namespace heddle
