// Loads the experts of a layer, which checkpoints store as three tensors each.
#pragma once

#include <string>

#include "layers/experts.h"
#include "layers/layer_loader.h"
#include "weights/slice.h"
#include "weights/weight_loader.h"

namespace heddle {

// Of one expert, without ".weight".
struct ExpertNames {
  std::string gate, up, down;
};

// This rank's features of one expert.
GatedWeights load_expert(LayerLoader& loader, const ExpertNames& names, const Extent& intermediate, Slice features);

// Appends it to the routed experts. Throws InputError when its dtype is not that of the ones before.
void add_expert(LayerLoader& loader, const ExpertNames& names, const Extent& intermediate, Slice features,
                ExpertsWeights& experts);

// After the last expert: what a GPU needs besides.
void finish_experts(LayerLoader& loader, ExpertsWeights& experts);

}  // namespace heddle
