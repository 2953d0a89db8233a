// A mixture of experts as a block of a model: norm, then a router chooses some experts for each token, whose outputs are
// summed with its weights, beside experts that all tokens share (Jiang et al., 2024, "Mixtral of Experts", section 2.1;
// DeepSeek-AI, 2024, "DeepSeek-V2", section 2.2). Each expert is a SwiGLU feed-forward (feed_forward.h). Every rank has the
// router and a part of each expert's features, so all ranks choose the same experts and leave partial sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/weight.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/route.h"
#include "layers/feed_forward.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"

namespace heddle {

// Of one layer; features are those of this rank. Weights of the routed experts have equal sizes and dtypes.
struct ExpertsWeights {
  Norm norm;
  Weight router;                               // [num_experts, hidden]
  const float* bias = nullptr;                 // [num_experts], of the choice; null: none
  std::vector<Weight> gate_up;                 // [num_experts]: gate and up stacked, [2 * intermediate, hidden]
  std::vector<Weight> down;                    // [num_experts]: [hidden, intermediate]
  const void* const* gate_up_table = nullptr;  // on a GPU: WeightGroup::table
  const void* const* down_table = nullptr;
  GatedWeights shared;  // the shared experts as one; without features: none

  bool has_shared() const { return shared.down.in_features > 0; }
};

// From step.normalized: leaves what it adds to the residual in step.delta.
void experts(int layer, const ExpertsWeights& weights, const RouteRule& rule, const LayerStep& step);

// The bytes of weights that a step with one token reads, of `top_k` experts.
std::size_t bytes_of_token(const ExpertsWeights& weights, int top_k);

// The bytes of one routed expert.
std::size_t bytes_of_expert(const ExpertsWeights& weights);

// How many of a layer's experts `num_tokens` tokens are expected to choose together where each chooses `top_k` of
// `num_experts` evenly and independently: E (1 - (1 - k/E)^tokens).
double expected_experts(int num_experts, int top_k, std::int64_t num_tokens);

// What steps read of a model's routed experts.
struct ExpertReads {
  int num_experts = 0;    // of a layer; 0: no layer has experts
  int top_k = 0;          // of them, that a token chooses
  std::size_t bytes = 0;  // of one expert in each layer that has experts, summed over layers

  // What a step of `num_tokens` tokens is expected to read beyond what one token reads (expected_experts).
  std::size_t bytes_beyond_one_token(std::int64_t num_tokens) const;
};

}  // namespace heddle
