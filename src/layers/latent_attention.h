// Latent attention (MLA; DeepSeek-AI, 2024, "DeepSeek-V2", section 2.1) over a paged cache, as a block of a model. The
// cache holds one latent for each token and one rotated key that all heads share. Queries are taken to the latents
// (W_UK absorbed), attention works there as with a single KV head, and each head's result is taken to its values (W_UV):
// keys and values of heads are never made. Decode and prefill take the same way, so that a token's bits do not depend on
// which of them computed it.
#pragma once

#include <cstddef>

#include "base/weight.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

// What all layers of a model have in common; heads are those of this rank.
struct LatentShape {
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
  Weight output;        // [hidden, num_heads * value_dim]
};

class LatentAttention {
 public:
  explicit LatentAttention(const LatentShape& shape) : shape_(shape) {}

  // What attention has of the arena in every block of a step. Nothing on the CPU.
  struct Memory {
    void* scratch = nullptr;
    std::byte* plans = nullptr;  // one for each part of a step
  };

  // Taken first, so that it stands at the same place in every step: attention leaves counters in its scratch.
  Memory take_memory(const StepLimits& limits, Arena& arena, Device device) const;

  // From step.normalized: extends the cache of `layer` by the step's tokens, and leaves what attention adds to the
  // residual in step.delta. The block of layer 0 comes first: it also plans the attention of all layers.
  void block(int layer, const LatentWeights& weights, const Memory& memory, const LayerStep& step) const;

 private:
  Tensor queries(Tensor down, const LatentWeights& weights, const LayerStep& step) const;

  LatentShape shape_;
};

}  // namespace heddle
