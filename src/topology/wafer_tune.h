// The autotuner of WaferLLM (section 4.4): how many cores prefill and decode should have, by model, lengths and memory.
#pragma once

#include <cstdint>

#include "topology/plmr.h"
#include "topology/wafer_predict.h"

namespace heddle {

struct WaferTuning {
  WaferMesh prefill_mesh, decode_mesh;
  WaferPrediction prediction;  // end to end, on these
};

// The square meshes of the device on which `context` tokens of prompt and `output` tokens after them take the least
// time, each phase by itself: all sides of which the weights, the layer's working set and the KV cache fit, in as many
// regions as the device's cores make. Regions do not change the time of one request, but what they add, the hops from
// one to the next, is not counted. Throws InputError, as predict_wafer does, when there is none.
WaferTuning tune_wafer(const PlmrDevice&, const WaferModel&, std::int64_t context, std::int64_t output);

}  // namespace heddle
