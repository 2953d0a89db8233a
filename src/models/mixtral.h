// Mixtral (Jiang et al., 2024, "Mixtral of Experts"): decoder layers of the Llama family with a mixture of experts instead
// of one feed-forward. The weights of a token's experts are the softmax over their router logits alone, which is the
// softmax over all, normalized over the chosen ones.
#pragma once

#include <memory>
#include <vector>

#include "layers/attention.h"
#include "layers/experts.h"
#include "layers/head.h"
#include "models/mixtral_config.h"
#include "models/model.h"
#include "parallel/strategy.h"
#include "parallel/tensor_split.h"
#include "weights/model_source.h"
#include "weights/weight_loader.h"

namespace heddle {

class Mixtral : public Model {
 public:
  struct Layer {
    AttentionWeights attention;
    ExpertsWeights experts;
  };

  struct Weights {
    Weight embedding;
    std::vector<Layer> layers;
    HeadWeights head;
    const float* inv_freq = nullptr;  // [head_dim / 2], rotary frequencies
    TensorSplit split;                // what this rank holds of all of it
    WeightStorage storage;
  };

  Mixtral(const MixtralConfig& config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute);

  const ModelShape& shape() const override { return shape_; }
  Device device() const override { return weights_.storage.device; }
  std::string why_not_fused(const FusedDecode& decode) const override;
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override;

 private:
  int hidden_;
  Weights weights_;
  std::unique_ptr<Strategy> strategy_;
  Attention attention_;
  RouteRule rule_;
  LayerDTypes dtypes_;
  ModelShape shape_;
};

// Throws InputError when config.json or the tensors are not those of a Mixtral that this one can run.
std::unique_ptr<Model> load_mixtral(const ModelSource& source, const LoadOptions& options);

}  // namespace heddle
