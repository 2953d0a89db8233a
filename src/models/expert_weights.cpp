#include "models/expert_weights.h"

#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

// A grouped GEMM multiplies by one dtype.
void require_same_dtype(const std::vector<Weight>& weights, const std::string& name) {
  if (weights.back().dtype != weights.front().dtype)
    throw_error<InputError>(
        "tensor \"{}.weight\" is loaded as {}, those of the layer's first expert as {}; choose one with --dtype", name,
        name_of(weights.back().dtype), name_of(weights.front().dtype));
}

const void* const* table_of(LayerLoader& loader, const std::vector<Weight>& weights) {
  std::vector<const void*> first;
  first.reserve(weights.size());
  for (const Weight& weight : weights) first.push_back(weight.blocks[0].data);
  return loader.tensors().pointers(first);
}

}  // namespace

GatedWeights load_expert(LayerLoader& loader, const ExpertNames& names, const Extent& intermediate, Slice features) {
  return {.gate_up = loader.projection(
              {rows_of(names.gate, intermediate, features), rows_of(names.up, intermediate, features)}),
          .down = loader.projection_back(names.down, intermediate, features)};
}

void add_expert(LayerLoader& loader, const ExpertNames& names, const Extent& intermediate, Slice features,
                ExpertsWeights& experts) {
  const GatedWeights expert = load_expert(loader, names, intermediate, features);
  experts.gate_up.push_back(expert.gate_up);
  experts.down.push_back(expert.down);
  require_same_dtype(experts.gate_up, names.gate);
  require_same_dtype(experts.down, names.down);
}

void finish_experts(LayerLoader& loader, ExpertsWeights& experts) {
  experts.gate_up_table = table_of(loader, experts.gate_up);
  experts.down_table = table_of(loader, experts.down);
}

}  // namespace heddle
