// Grouped-query attention with rotary positions over a paged cache, as a block of a model: norm, queries, keys and
// values, rotation, attention, output (Touvron et al., 2023, section 2.2; Ainslie et al., 2023, "GQA"). A layer may have
// a sliding window, and a norm of each head of queries and keys before the rotation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/weight.h"
#include "fused/decode_block_plan.h"
#include "layers/fused_decode.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

// What all layers of a model have in common; heads are those of this rank.
struct AttentionShape {
  int hidden = 0;
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

  // What attention has of the arena in every block of a step. On the CPU only fused attention takes anything.
  struct Memory {
    void* scratch = nullptr;
    std::byte* plans = nullptr;  // for each part of a step one for each distinct window
    void* decode_scratch = nullptr;
  };

  // Taken first, so that it stands at the same place in every step: attention leaves counters in its scratch.
  Memory take_memory(const StepLimits& limits, Arena& arena, Device device) const;

  // From step.normalized: extends the cache of `layer` by the step's tokens, and leaves what attention adds to the
  // residual in step.delta. The block of layer 0 comes first: it also plans the attention of all layers.
  void block(int layer, const AttentionWeights& weights, const Memory& memory, const LayerStep& step) const;

  // The same in one operator with the norm before it (fused/decode_block.h): from before.residual and what is pending to
  // after.residual, which is other memory, and after.delta, float32. For steps of one new token a sequence whose choice
  // (StepChoices::decode) why_not_fused() has nothing against.
  void decode(int layer, const AttentionWeights& weights, const Memory& memory, const Hidden& before,
              const Hidden& after, const LayerStep& step) const;

  // Why such a step cannot be computed so on the device, for people. Empty: it can. It may ask the driver, so it is for
  // when a choice is made.
  std::string why_not_fused(const FusedDecode& decode, FunctionRef<const AttentionWeights&(int layer)> weights,
                            const LayerDTypes& dtypes, const Strategy& strategy, Device device) const;

 private:
  DecodeBlockShape decode_shape(int num_tokens) const;
  std::size_t decode_scratch_bytes(const StepLimits& limits) const;
  void plan(const Memory& memory, const LayerStep& step) const;
  std::size_t plan_bytes(const StepLimits& limits, Device device) const;
  void* plan_of(int window, const Memory& memory, const LayerStep& step) const;

  AttentionShape shape_;
  std::vector<int> windows_;  // each once
};

}  // namespace heddle
