// What a language model does on a PLMR device: tokens a second, cycles, memory, regions and energy of prefill, of decode
// and of both, from the costs of their layers (wafer_cost.h), with the range that the device's constants leave.
#pragma once

#include <cstdint>
#include <functional>

#include "topology/plmr.h"
#include "topology/wafer_baselines.h"
#include "topology/wafer_cost.h"

namespace heddle {

enum class WaferPhase : std::uint8_t { prefill, decode, end_to_end };

// As wafer_cost.h says of each phase; end to end is a prefill of `context` tokens, the move of weights and KV cache to
// the decode mesh, and `output` tokens. The paper's throughputs leave embedding and logits out; so does this.
struct WaferWork {
  WaferPhase phase = WaferPhase::prefill;
  WaferMesh prefill_mesh{};     // of prefill and end_to_end
  WaferMesh decode_mesh{};      // of decode and end_to_end
  std::int64_t context = 4096;  // prefill: tokens of the prompt; decode: tokens before the one that is made
  std::int64_t output = 0;      // tokens made, end to end and in decode; 0 there: one
  WaferMethod method = WaferMethod::waferllm;
  AllReduceOptions all_reduce{};  // of decode
};

struct WaferRange {
  double low = 0, high = 0;
};

struct WaferPrediction {
  // Of the whole model, of one request: prompt tokens / time (prefill), output tokens / time (decode), and output
  // tokens / (prefill + decode time).
  double tokens_per_second = 0;
  WaferRange range;    // of tokens_per_second
  WaferCost cost;      // all layers: the whole prompt (prefill), the output (decode), everything (end to end)
  int regions = 0;     // meshes that hold the model as pipeline stages; end to end: of decode
  double devices = 0;  // that so many regions are; above 1 the time is that of the layers which fit, scaled
  // Of a core, in prefill alone: the prompt's keys and values in `regions`, which memory_bytes and regions leave out (with
  // them Llama-2-13B's 4096 tokens, which the paper runs, would not fit).
  double uncounted_kv_bytes = 0;
};

// Throws InputError, with need, budget and the least mesh or number of regions that would do, where a layer does not
// fit a core, where the weights fit the device but the KV cache does not hold the context, and, end to end, where the
// weights do not fit. (Of prefill or decode alone the paper times the layers that fit and scales: so does this.)
// InvalidArgument on sizes < 1.
WaferPrediction predict_wafer(const PlmrDevice&, const WaferModel&, const WaferWork&);

// From the prefill's places to the decode's: weights and keys and values cross the middle of the wafer, half of them
// each way, over as many links as the prefill mesh is high. No less is possible; the paper calls it instant.
double transition_cycles(const PlmrDevice&, const WaferModel&, WaferMesh prefill_mesh, std::int64_t context);

// The cycles of `work` where weights and context fit the device whole; throws InputError where they do not, in every phase.
double fitting_cycles(const PlmrDevice&, const WaferModel&, const WaferWork&);

// Least and greatest `of(device)`, a time or a rate, as the constants of its programs take other values: those of the
// device's other fits where it has some (which were fitted with alpha and the ramps as they are), and beyond them twice
// the fit's standard error, by which cells differ that were fitted; else each constant from low to high by itself,
// deviations added in quadrature.
WaferRange range_over_constants(const PlmrDevice&, const std::function<double(const PlmrDevice&)>& of);

}  // namespace heddle
