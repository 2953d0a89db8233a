// The autotuner of WaferLLM (section 4.4): how many cores prefill and decode should have, by model, lengths and memory.
#pragma once

#include <cstdint>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_predict.h"

namespace heddle {

struct WaferTuning {
  WaferMesh prefill_mesh, decode_mesh;
  WaferPrediction prediction;  // end to end, on these
};

// The meshes of the device, squares and rectangles, on which `context` tokens of prompt and `output` tokens after them
// take the least time, each phase by itself, where weights, the layer's working set and the KV cache fit regions that
// lie side by side, or, where nothing does, as many as the device's cores make (the prediction warns). Prefill: of all
// whose sides' least common multiple is at most twice the longer one. Decode: of a grid of rectangles, of all squares
// and of those that share the device evenly, then of all sides near the best. Regions do not change the time of one
// request, but what they add, the hops from one to the next, is not counted. Some seconds at most. Throws InputError,
// as predict_wafer does, when there is none.
WaferTuning tune_wafer(const PlmrDevice&, const WaferModel&, std::int64_t context, std::int64_t output);

}  // namespace heddle
