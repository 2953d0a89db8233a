// The autotuner of WaferLLM (section 4.4): chooses cores for prefill and decode by model, lengths and memory.
#pragma once

#include <cstdint>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_predict.h"

namespace heddle {

struct WaferTuning {
  WaferMesh prefill_mesh, decode_mesh;
  WaferPrediction prediction;  // end to end, on these meshes
};

// Finds the meshes of the device, squares and rectangles, on which `context` prompt tokens and `output` new tokens take
// the least time, each phase by itself. Weights, the layer's working set and the KV cache must fit regions that lie
// side by side; if none do, as many regions as the device's cores make (the prediction warns). Hops from region to
// region are not counted. Takes some seconds at most. Throws InputError, as predict_wafer does, when there is none.
WaferTuning tune_wafer(const PlmrDevice&, const WaferModel&, std::int64_t context, std::int64_t output);

}  // namespace heddle
