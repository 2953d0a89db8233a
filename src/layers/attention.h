// Grouped-query attention with rotary positions over a paged cache, as a block of a model: norm, queries, keys and
// values, rotation, attention, output (Touvron et al., 2023, section 2.2; Ainslie et al., 2023, "GQA"). A layer may have
// a sliding window, and a norm of each head of queries and keys before the rotation.
#pragma once

#include <cstddef>
#include <vector>

#include "base/weight.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

// What all layers of a model have in common; heads are those of this rank.
struct AttentionShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  std::vector<int> windows;         // [num_layers]; keys that a token attends to, 0: all up to its own
  const float* inv_freq = nullptr;  // [head_dim / 2], rotary frequencies
  float rope_scale = 1;             // of sines and cosines
};

// Of one layer.
struct AttentionWeights {
  Norm norm;
  Weight qkv;       // q, k and v stacked: [(num_heads + 2 * num_kv_heads) * head_dim, hidden]
  Norm query_norm;  // [head_dim]; weight null: none
  Norm key_norm;    // likewise
  Weight output;    // [hidden, num_heads * head_dim]
};

class Attention {
 public:
  explicit Attention(AttentionShape shape);

  // What attention has of the arena in every block of a step. Nothing on the CPU.
  struct Memory {
    void* scratch = nullptr;
    std::byte* plans = nullptr;  // for each part of a step one for each distinct window
  };

  // Taken first, so that it stands at the same place in every step: attention leaves counters in its scratch.
  Memory take_memory(const StepLimits& limits, Arena& arena, Device device) const;

  // From step.normalized: extends the cache of `layer` by the step's tokens, and leaves what attention adds to the
  // residual in step.delta. The block of layer 0 comes first: it also plans the attention of all layers.
  void block(int layer, const AttentionWeights& weights, const Memory& memory, const LayerStep& step) const;

 private:
  void plan(const Memory& memory, const LayerStep& step) const;
  std::size_t plan_bytes(const StepLimits& limits, Device device) const;
  void* plan_of(int window, const Memory& memory, const LayerStep& step) const;

  AttentionShape shape_;
  std::vector<int> windows_;  // each once
};

}  // namespace heddle
