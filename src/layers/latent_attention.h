// Latent attention (MLA; DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1) over a paged cache, as a block of a model. The
// cache holds one latent for each token and one rotated key that all heads share. There are two ways (latent_rows.h):
//   absorbed  queries are taken to the latents (W_UK absorbed), attention works there as with a single KV head, and each
//             head's result is taken to its values (W_UV): keys and values of heads are never made
//   expanded  keys and values of all heads are made of the cached latents, some thousand positions at a time, and attention
//             works with those
// A sequence with many new tokens in a step is computed expanded, each other one absorbed, so a step may have both. On a GPU
// that takes heads and dtypes that expanded_attention() has a kernel for; others are absorbed.
#pragma once

#include <cstddef>
#include <string>

#include "base/function_ref.h"
#include "base/weight.h"
#include "fused/latent_block/latent_block_plan.h"
#include "kernels/attention/expanded_attention.h"
#include "layers/fused_decode.h"
#include "layers/latent_rows.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

// What all layers of a model have in common; heads are those of this rank.
struct LatentShape {
  int hidden = 0;
  int num_layers = 0;
  int num_heads = 0;
  int nope_dim = 0;                 // of a head's query and key, without position
  int rope_dim = 0;                 // of them, rotated
  int value_dim = 0;                // of a head's value
  int latent_dim = 0;               // kv_lora_rank
  const float* inv_freq = nullptr;  // [rope_dim / 2], rotary frequencies
  float rope_scale = 1;             // of sines and cosines
  float score_scale = 0;            // of the softmax

  int query_dim() const { return nope_dim + rope_dim; }
  int cached_dim() const { return latent_dim + rope_dim; }
  ExpandedHead expanded_head() const { return {nope_dim, rope_dim, value_dim}; }
  int most_absorbed() const { return most_absorbed_tokens({nope_dim, rope_dim, value_dim, latent_dim}); }
  int expanded_dim() const { return nope_dim + value_dim; }  // of a head, that its latents make
  int piece_keys(Device device) const;                       // positions that are expanded at a time
};

// Of one layer.
struct LatentWeights {
  Norm norm;
  Weight down;      // queries, or their latent where query_up is not empty, then latent and shared key: [.., hidden]
  Norm query_norm;  // of the queries' latent
  Weight query_up;  // [num_heads * query_dim, q_lora_rank]; without rows: none
  Norm latent_norm;
  Weight to_latents;    // W_UK transposed, head after head: [num_heads * latent_dim, nope_dim]
  Weight from_latents;  // W_UV: [num_heads * value_dim, latent_dim]
  Weight expansion;     // of each head W_UK, then W_UV: [num_heads * expanded_dim, latent_dim]
  Weight output;        // [hidden, num_heads * value_dim]
};

class LatentAttention {
 public:
  explicit LatentAttention(const LatentShape& shape) : shape_(shape) {}

  // What attention has of the arena in every block of a step. On the CPU only fused attention takes anything.
  struct Memory {
    void* scratch = nullptr;
    std::byte* plans = nullptr;  // one for each part of a step
    void* decode_scratch = nullptr;
  };

  // Taken first, so that it stands at the same place in every step: attention leaves counters in its scratch.
  Memory take_memory(const StepLimits& limits, Arena& arena, Device device) const;

  // From step.normalized: extends the cache of `layer` by the step's tokens, and leaves what attention adds to the
  // residual in step.delta. The block of layer 0 comes first: it also plans the attention of all layers.
  void block(int layer, const LatentWeights& weights, const Memory& memory, const LayerStep& step) const;

  // The same in one operator with the norm before it (fused/latent_block/latent_block.h): from before.residual and what is
  // pending to after.residual, which is other memory, and after.delta, float32. For steps of one new token a sequence whose
  // choice (StepChoices::decode) why_not_fused() has nothing against.
  void decode(int layer, const LatentWeights& weights, const Memory& memory, const Hidden& before, const Hidden& after,
              const LayerStep& step) const;

  // Why such a step cannot be computed so on the device, for people. Empty: it can.
  std::string why_not_fused(const FusedDecode& decode, FunctionRef<const LatentWeights&(int layer)> weights,
                            const LayerDTypes& dtypes, const Strategy& strategy, Device device) const;

  // The most new tokens of a sequence in a step that are computed absorbed on this device; the largest int: all are.
  int most_absorbed(const AttentionStrategy& attention, const LayerDTypes& dtypes, Device device) const;

 private:
  // One layer of a step, or of a part.
  struct Block;

  LatentBlockShape decode_shape(int num_tokens, const DecodeChoice& choice, Device device) const;
  std::size_t decode_scratch_bytes(const StepLimits& limits, Device device) const;
  Tensor queries(Tensor down, const LatentWeights& weights, const LayerStep& step) const;
  void absorbed(const LatentRun& run, const Block& block) const;
  void expanded(const LatentRun& run, const Block& block) const;
  struct AbsorbedTensors;
  AbsorbedTensors take_absorbed(std::int64_t num_rows, const LayerStep& step) const;
  struct ExpandedTensors;
  ExpandedTensors take_expanded(std::int64_t num_keys, const LayerStep& step) const;
  void* plan_of(const LatentRun& run, const Block& block) const;
  void reserve_others(int most_absorbed, int longest, const LayerStep& step) const;
  void write_cache(const PagedSequences& sequences, std::int64_t first_row, Tensor q, Tensor query,
                   const Block& block) const;

  LatentShape shape_;
};

}  // namespace heddle
