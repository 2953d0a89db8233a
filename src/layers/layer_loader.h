// Loads the weights of blocks as a rank holds them: rows or columns of the checkpoint's tensors, with biases.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/weight.h"
#include "parallel/strategy.h"
#include "parallel/tensor_split.h"
#include "weights/slice.h"
#include "weights/weight_loader.h"

namespace heddle {

// Sizes with their reasons, for errors: "hidden_size in config.json is 4096".
Extent config_extent(std::int64_t size, std::string_view field);
Extent heads_extent(int num_heads, std::string_view field, int head_dim);

// This rank's rows of the tensor `name`.
NamedRows rows_of(std::string name, const Extent& rows, Slice slice);

enum class HasBias : bool { no, yes };

// Throws as WeightLoader does.
class LayerLoader {
 public:
  // `hidden`: the model's width. `split`: this rank's part.
  LayerLoader(const TensorSource& source, WeightLoaderOptions options, Extent hidden, float rms_norm_eps,
              const TensorSplit& split);

  // The weight of an RMSNorm over `size` elements.
  Norm norm(const std::string& name, const Extent& size);
  Norm norm(const std::string& name) { return norm(name, hidden_); }  // of the hidden state

  // y = x W^T + b, x of the hidden size or of `in_features`: rows of tensors NAME.weight [rows, in_features], stacked,
  // and where there is a bias of NAME.bias [rows]. `blocks` say NAME.
  Weight projection(const std::vector<NamedRows>& blocks, HasBias bias = HasBias::no) {
    return projection(blocks, hidden_, bias);
  }
  Weight projection(const std::vector<NamedRows>& blocks, const Extent& in_features, HasBias bias);

  // The same back to the hidden size, of this rank's columns of NAME.weight [hidden, in_features]: the ranks' products
  // add up, and one of them has the bias.
  Weight projection_back(const std::string& name, const Extent& in_features, Slice columns, HasBias bias = HasBias::no);

  // Embedding or output: this rank's tokens of the tensor `name` [vocab_size, hidden].
  Weight vocabulary(const std::string& name, const Extent& vocab_size);

  WeightLoader& tensors() { return loader_; }  // for all else, and to finish

 private:
  WeightLoader loader_;
  Extent hidden_;
  float rms_norm_eps_;
  TensorSplit split_;
};

}  // namespace heddle
