// The Llama family: pre-norm decoder layers of grouped-query attention with rotary positions, and a SwiGLU feed-forward
// (Touvron et al., 2023, sections 2.2 and, for GQA, Llama 2's). Mistral adds a sliding window, Qwen2 biases, Qwen3 a
// norm of queries and keys; llama_architecture.h tells them apart.
#pragma once

#include <memory>
#include <vector>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/head.h"
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
    AttentionWeights attention;
    FeedForwardWeights feed_forward;
  };

  struct Weights {
    Weight embedding;
    std::vector<Layer> layers;
    HeadWeights head;
    const float* inv_freq = nullptr;  // [head_dim / 2], rotary frequencies
    TensorSplit split;                // what this rank holds of all of it
    WeightStorage storage;
  };

  Llama(const LlamaConfig& config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute);

  const ModelShape& shape() const override { return shape_; }
  Device device() const override { return weights_.storage.device; }
  std::string why_not_fused(const FusedDecode& decode) const override;
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override;

 private:
  int hidden_;
  Weights weights_;
  std::unique_ptr<Strategy> strategy_;
  Attention attention_;
  LayerDTypes dtypes_;
  ModelShape shape_;
};

// The part of options.place. Throws InputError when a tensor is missing or is not as `config`, parsed from the same
// source, asks for, and as tensor_split does.
Llama::Weights load_llama_weights(const ModelSource& source, const LlamaConfig& config, const LoadOptions& options);

// Throws InputError when config.json or the tensors are not those of a model of the family that this one can run.
std::unique_ptr<Model> load_llama(const ModelSource& source, const LoadOptions& options);

}  // namespace heddle
