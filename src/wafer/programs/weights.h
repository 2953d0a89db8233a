// A decoder of the Llama family as the wafer programs see it: sizes and loaded weights.
#pragma once

#include <vector>

#include "base/weight.h"
#include "parallel/strategy.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle {

struct WaferLayer {
  Norm attention_norm;
  Weight qkv;                 // q, k and v stacked, with or without a bias
  Norm query_norm, key_norm;  // [head_dim], for each head; null: none
  Weight output;
  Norm feed_forward_norm;
  Weight gate_up;  // gate and up stacked
  Weight down;
  int window = 0;  // keys that a token attends to; 0: all up to its own
};

struct WaferWeights {
  WaferModel shape;
  Weight embedding;
  std::vector<WaferLayer> layers;
  Norm final_norm;
  Weight logits;
  std::vector<float> inv_freq;  // [head_dim / 2], of rotary positions
  float rope_scale = 1;         // on cosine and sine
};

}  // namespace heddle
