// What a language model does on a PLMR device: tokens a second, cycles, memory, regions and energy of prefill, of decode
// and of both, from the costs of their layers (wafer_cost.h), with the range that the device's constants leave.
#pragma once

#include <cstdint>
#include <functional>

#include "topology/plmr.h"
#include "topology/wafer_cost.h"

namespace heddle {

enum class WaferPhase : std::uint8_t { prefill, decode, end_to_end };

// As wafer_cost.h says of each phase; end to end is a prefill of `context` tokens, the move of weights and KV cache to
// the decode mesh, and `output` tokens. The paper's throughputs leave embedding and logits out; so does this.
struct WaferWork {
  WaferPhase phase = WaferPhase::prefill;
  WaferMesh prefill_mesh;       // of prefill and end_to_end
  WaferMesh decode_mesh;        // of decode and end_to_end
  std::int64_t context = 4096;  // prefill: tokens of the prompt; decode: tokens before the one that is made
  std::int64_t output = 0;      // end to end: tokens made
};

struct WaferRange {
  double low = 0, high = 0;
};

struct WaferPrediction {
  // Of the whole model, of one request: prompt tokens / time (prefill), 1 / time of a token (decode), and output tokens
  // / (prefill + decode time).
  double tokens_per_second = 0;
  WaferRange range;    // of tokens_per_second
  WaferCost cost;      // all layers: the whole prompt (prefill), a token (decode), everything (end to end)
  int regions = 0;     // meshes that hold the model as pipeline stages; end to end: of decode
  double devices = 0;  // that so many regions are; above 1 the time is that of the layers which fit, scaled
  double joules = 0;   // of `cost`: thermal design power times time, no measurement
};

// Throws InputError, with need, budget and the least mesh or number of regions that would do, where a layer does not
// fit a core, a context the KV cache, or, end to end, the model the device. InvalidArgument on sizes < 1.
WaferPrediction predict_wafer(const PlmrDevice&, const WaferModel&, const WaferWork&);

// Least and greatest `of(device)` as the fitted and assumed constants of the device take other values: those of its
// other fits where it has some, else each from low to high by itself, deviations added in quadrature.
WaferRange range_over_constants(const PlmrDevice&, const std::function<double(const PlmrDevice&)>& of);

}  // namespace heddle
