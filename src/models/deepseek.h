// DeepSeek-V2 (DeepSeek-AI, 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model") and
// models of DeepSeek-V3's architecture: latent attention, and behind a few dense layers a mixture of routed and shared
// experts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/experts.h"
#include "layers/feed_forward.h"
#include "layers/head.h"
#include "layers/latent_attention.h"
#include "models/deepseek_config.h"
#include "models/model.h"
#include "parallel/strategy.h"
#include "parallel/tensor_split.h"
#include "weights/model_source.h"
#include "weights/weight_loader.h"

namespace heddle {

class Deepseek : public Model {
 public:
  struct Layer {
    LatentWeights attention;
    FeedForwardWeights dense;               // where there are no experts
    std::optional<ExpertsWeights> experts;  // nothing: a dense layer
  };

  struct Weights {
    Weight embedding;
    std::vector<Layer> layers;
    HeadWeights head;
    const float* inv_freq = nullptr;  // [rope_dim / 2], rotary frequencies
    TensorSplit split;                // of heads and vocabulary
    WeightStorage storage;
  };

  Deepseek(const DeepseekConfig& config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute);

  const ModelShape& shape() const override { return shape_; }
  Device device() const override { return weights_.storage.device; }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override;
  std::string why_not_fused(const FusedDecode& decode) const override;

 private:
  int hidden_;
  Weights weights_;
  std::unique_ptr<Strategy> strategy_;
  LatentAttention attention_;
  RouteRule rule_;
  LayerDTypes dtypes_;
  ModelShape shape_;
};

// Throws InputError when config.json or the tensors are not those of a model of the family that this one can run.
std::unique_ptr<Model> load_deepseek(const ModelSource& source, const LoadOptions& options);

}  // namespace heddle
