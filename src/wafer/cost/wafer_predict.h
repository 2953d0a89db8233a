// Predicts a language model on a PLMR device: tokens per second, cycles, memory, regions and energy of prefill, of
// decode and of both. It adds up the costs of layers (wafer_cost.h) and gives ranges over the device's constants.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_baselines.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/cost/wafer_regions.h"

namespace heddle {

enum class WaferPhase : std::uint8_t { prefill, decode, end_to_end };

// Prefill and decode are as in wafer_cost.h. End to end is a prefill of `context` tokens, the move of weights and KV
// cache to the decode mesh, and `output` decoded tokens. Like the paper's throughputs, none of them counts embedding
// and logits.
struct WaferWork {
  WaferPhase phase = WaferPhase::prefill;
  WaferMesh prefill_mesh{};     // of prefill and end_to_end
  WaferMesh decode_mesh{};      // of decode and end_to_end
  std::int64_t context = 4096;  // prefill: tokens of the prompt; decode: tokens before the first new one
  std::int64_t output = 0;      // new tokens of end_to_end and decode; 0 in decode: one
  WaferMethod method = WaferMethod::waferllm;
  AllReduceOptions all_reduce{};  // of decode; prefill uses its synchronisation, too
};

struct WaferRange {
  double low = 0, high = 0;
};

// Where a phase keeps the weights and the request's keys and values.
struct WaferPlacement {
  int regions = 0;          // the least number of meshes that share them as pipeline stages
  double memory_bytes = 0;  // per core
  double kv_bytes = 0;      // of memory_bytes: keys and values
  double kv_beside = 0;     // of the device: keys and values on cores beside the meshes; not in memory_bytes
};

struct WaferPrediction {
  // For the whole model and one request: prompt tokens / time (prefill), output tokens / time (decode), output tokens /
  // (prefill + decode time) (end to end).
  double tokens_per_second = 0;
  // Range of tokens_per_second: range_over_constants(). For a WaferLLM prefill it also covers meshes whose sides differ
  // by up to one per cent, because tile sizes are stepwise; for a mesh that is not square it adds the error once
  // more.
  WaferRange range;
  WaferCost cost;       // all layers: the whole prompt (prefill), the output (decode), everything (end to end)
  int regions = 0;      // meshes that hold the model as pipeline stages; end to end: of decode
  RegionRoom room;      // how many such meshes the device has
  double devices = 0;   // regions / regions that fit side by side
  double kv_bytes = 0;  // part of cost.memory_bytes; end to end: of decode
  WaferPlacement prefill_placement;  // end to end only
  // One sentence each: regions that do not fit side by side, a model timed by the layers that fit, keys and values on
  // other cores, sides with a large least common multiple.
  std::vector<std::string> warnings;
  // One sentence each on what the number means: KV heads, unmeasured constants, meshes unlike the measured ones.
  std::vector<std::string> notes;
};

// Memory of prefill: weights, a layer's activations and buffers, and the prompt's keys and values, which stay until the
// transition. If keys and values do not fit beside the weights (Llama-2-13B's 4096 tokens on the paper's 750 x 750),
// each layer hands its own to idle cores beside the meshes, as long as there are enough.
//
// Throws InvalidArgument on sizes < 1. Throws InputError, with core, phase, mesh, need, budget and the smallest mesh
// that would do: where a layer does not fit a core; where the weights fit the device but no square mesh of it holds the
// context; and, end to end, where the model or the context does not fit. For prefill or decode alone it times the
// layers that fit and scales, with a warning, as the paper does.
WaferPrediction predict_wafer(const PlmrDevice&, const WaferModel&, const WaferWork&);
// WaferPrediction::tokens_per_second alone, for work that predict_wafer accepts. Throws InputError as the layers' costs
// do.
double wafer_tokens_per_second(const PlmrDevice&, const WaferModel&, const WaferWork&);

// From the prefill's places to the decode's: half of the weights, keys and values cross the middle of the wafer in each
// direction, over as many links as the prefill mesh is high. This is a lower bound; the paper calls it instant.
double transition_cycles(const PlmrDevice&, const WaferModel&, WaferMesh prefill_mesh, std::int64_t context);

// Which number of RegionRoom limits the regions.
enum class RegionCount : std::uint8_t { side_by_side, by_cores };
// Cycles of prefill or decode where weights and context fit the device completely, in so many regions; nullopt where
// they do not. Throws InputError where a single layer does not fit a core.
std::optional<double> fitting_cycles(const PlmrDevice&, const WaferModel&, const WaferWork&, RegionCount);
// Throws InputError, as predict_wafer does, where fitting_cycles() returns nullopt for regions side by side.
void check_fits_side_by_side(const PlmrDevice&, const WaferModel&, const WaferWork&);

// Least and greatest `of(device)`, a time or a rate, over the uncertainty of the device's constants. With other fits:
// over all of them (alpha and the ramps are fixed in a fit), extended by `margin`, relative. Without: each constant goes
// from low to high by itself, and the logarithms of the changes are added in quadrature.
WaferRange range_over_constants(const PlmrDevice&, const std::function<double(const PlmrDevice&)>& of, double margin);

}  // namespace heddle
