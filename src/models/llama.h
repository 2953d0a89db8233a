// The Llama family: pre-norm decoder layers of grouped-query attention with rotary positions, and a SwiGLU feed-forward
// (Touvron et al., 2023, sections 2.2 and, for GQA, Llama 2's). Mistral adds a sliding window, Qwen2 biases, Qwen3 a
// norm of queries and keys; llama_architecture.h tells them apart.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "models/llama_config.h"
#include "models/model.h"
#include "parallel/strategy.h"
#include "parallel/tensor_split.h"
#include "weights/model_source.h"
#include "weights/weight_loader.h"

namespace heddle {

class Llama : public Model {
 public:
  struct Layer {
    Norm attention_norm;
    Weight qkv;       // q, k and v stacked: [(num_heads + 2 * num_kv_heads) * head_dim, hidden], of this rank's heads
    Norm query_norm;  // [head_dim]; of each head; used where the config says qk_norm
    Norm key_norm;
    Weight output;
    Norm feed_forward_norm;
    Weight gate_up;  // gate and up stacked: [2 * intermediate, hidden], of this rank's features
    Weight down;
  };

  struct Weights {
    Weight embedding;
    std::vector<Layer> layers;
    Norm final_norm;
    Weight logits;                    // the embedding where tied
    const float* inv_freq = nullptr;  // [head_dim / 2], rotary frequencies
    TensorSplit split;                // what this rank holds of all of it
    WeightStorage storage;
  };

  Llama(LlamaConfig config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute);

  const ModelShape& shape() const override { return shape_; }
  Device device() const override { return weights_.storage.device; }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Lane& lane) override;

 private:
  // What all blocks of one step share.
  struct Step {
    const StepTensors& tensors;
    const KvPages& kv;
    Arena& arena;
    const Lane& lane;            // its workspace is that of matrices
    Tensor delta;                // [num_tokens, hidden]: where blocks leave what they produce
    void* attention_scratch;     // on a GPU
    std::byte* attention_plans;  // one for each of windows_, on a GPU
  };

  std::size_t attention_scratch_bytes(const StepLimits& limits) const;
  std::size_t attention_plan_bytes(const StepLimits& limits) const;
  void plan_attention(const Step& step);
  void* attention_plan(int window, const Step& step) const;
  Hidden attention_block(int layer, Hidden hidden, const Step& step);
  Hidden feed_forward_block(int layer, Hidden hidden, const Step& step);
  Tensor logits(Hidden hidden, const Step& step);
  int num_heads() const { return weights_.split.num_heads(); }  // of this rank
  int num_kv_heads() const { return weights_.split.num_kv_heads(); }

  LlamaConfig config_;
  std::vector<int> windows_;  // of attention, each once
  Weights weights_;
  std::unique_ptr<Strategy> strategy_;
  DType activations_;    // of what is multiplied with weights
  DType intermediates_;  // of what matrices make within a block
  DType deltas_;         // of what a block leaves to be added to the residual
  float rope_scale_;
  ModelShape shape_;
};

// The part of options.place. Throws InputError when a tensor is missing or is not as `config`, parsed from the same
// source, asks for, and as tensor_split does.
Llama::Weights load_llama_weights(const ModelSource& source, const LlamaConfig& config, const LoadOptions& options);

// Throws InputError when config.json or the tensors are not those of a model of the family that this one can run.
std::unique_ptr<Model> load_llama(const ModelSource& source, const LoadOptions& options);

}  // namespace heddle
