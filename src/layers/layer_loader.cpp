#include "layers/layer_loader.h"

#include <fmt/format.h>

#include <utility>

namespace heddle {
namespace {

std::vector<NamedRows> with_suffix(std::vector<NamedRows> blocks, std::string_view suffix) {
  for (NamedRows& block : blocks) block.name += suffix;
  return blocks;
}

WeightLoaderOptions for_part(WeightLoaderOptions options, int ranks) {
  if (ranks > 1) options.reserved_bytes = 0;  // not all of the source's tensors
  return options;
}

}  // namespace

Extent config_extent(std::int64_t size, std::string_view field) {
  return {size, fmt::format("{} in config.json is {}", field, size)};
}

Extent heads_extent(int num_heads, std::string_view field, int head_dim) {
  return {std::int64_t{num_heads} * head_dim,
          fmt::format("{} in config.json is {} and head_dim {}", field, num_heads, head_dim)};
}

NamedRows rows_of(std::string name, const Extent& rows, Slice slice) {
  return {.name = std::move(name), .rows = rows, .first = slice.first, .count = slice.count};
}

LayerLoader::LayerLoader(const TensorSource& source, WeightLoaderOptions options, Extent hidden, float rms_norm_eps,
                         const TensorSplit& split)
    : loader_(source, for_part(std::move(options), split.ranks)),
      hidden_(std::move(hidden)),
      rms_norm_eps_(rms_norm_eps),
      split_(split) {}

Norm LayerLoader::norm(const std::string& name, const Extent& size) {
  return {.weight = loader_.vector(name, size), .eps = rms_norm_eps_};
}

Weight LayerLoader::projection(const std::vector<NamedRows>& blocks, const Extent& in_features, HasBias bias) {
  Weight weight = loader_.matrix(with_suffix(blocks, ".weight"), in_features);
  if (bias == HasBias::no) return weight;
  const std::vector<NamedRows> biases = with_suffix(blocks, ".bias");
  weight.bias = loader_.vector(biases);
  weight.bias_dtype = loader_.stored_dtype(biases);
  return weight;
}

Weight LayerLoader::projection_back(const std::string& name, const Extent& in_features, Slice columns, HasBias bias) {
  const NamedRows weights{.name = name + ".weight", .rows = hidden_}, biases{.name = name + ".bias", .rows = hidden_};
  Weight weight = loader_.matrix({&weights, 1}, in_features, columns);
  if (bias == HasBias::no) return weight;
  weight.bias_dtype = loader_.stored_dtype({&biases, 1});
  if (split_.adds_biases_of_sums()) weight.bias = loader_.vector({&biases, 1});
  return weight;
}

Weight LayerLoader::vocabulary(const std::string& name, const Extent& vocab_size) {
  return loader_.matrix(rows_of(name, vocab_size, split_.vocabulary), hidden_);
}

}  // namespace heddle
