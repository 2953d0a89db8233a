// What a language model does on a PLMR device: tokens a second, cycles, memory, regions and energy of prefill, of
// decode and of both, from the costs of their layers (wafer_cost.h), with the range that the device's constants leave.
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

// As wafer_cost.h says of each phase; end to end is a prefill of `context` tokens, the move of weights and KV cache to
// the decode mesh, and `output` tokens. The paper's throughputs leave embedding and logits out; so does this.
struct WaferWork {
  WaferPhase phase = WaferPhase::prefill;
  WaferMesh prefill_mesh{};     // of prefill and end_to_end
  WaferMesh decode_mesh{};      // of decode and end_to_end
  std::int64_t context = 4096;  // prefill: tokens of the prompt; decode: tokens before the one that is made
  std::int64_t output = 0;      // tokens made, end to end and in decode; 0 there: one
  WaferMethod method = WaferMethod::waferllm;
  AllReduceOptions all_reduce{};  // of decode; its synchronisation is prefill's, too
};

struct WaferRange {
  double low = 0, high = 0;
};

// Where a phase's weights and the request's keys and values lie.
struct WaferPlacement {
  int regions = 0;          // meshes that share them as pipeline stages, as few as do
  double memory_bytes = 0;  // of a core
  double kv_bytes = 0;      // of it, keys and values
  double kv_beside = 0;     // of the device: keys and values on cores beside the meshes; they count in no core's bytes
};

struct WaferPrediction {
  // Of the whole model, of one request: prompt tokens / time (prefill), output tokens / time (decode), and output
  // tokens / (prefill + decode time).
  double tokens_per_second = 0;
  // Of tokens_per_second: range_over_constants(); of a WaferLLM prefill's mesh also what its neighbours within a per
  // cent of a side come to, for tiles' sizes have steps there; and where a mesh is not square the residual once more.
  WaferRange range;
  WaferCost cost;       // all layers: the whole prompt (prefill), the output (decode), everything (end to end)
  int regions = 0;      // meshes that hold the model as pipeline stages; end to end: of decode
  RegionRoom room;      // how many of that mesh the device has
  double devices = 0;   // regions over those side by side
  double kv_bytes = 0;  // of cost.memory_bytes; end to end: of decode
  WaferPlacement prefill_placement;  // end to end
  // One sentence each: regions that do not lie side by side, a model that is timed by the layers which fit, keys and
  // values on other cores, sides whose least common multiple is large.
  std::vector<std::string> warnings;
  // Likewise, of what the number stands for: KV heads, constants that nobody measured, meshes unlike those that were.
  std::vector<std::string> notes;
};

// Memory of prefill: weights, a layer's activations and buffers, and the prompt's own keys and values, which stay until
// the transition. Where they do not fit beside the weights (Llama-2-13B's 4096 tokens on the paper's 750 x 750) each
// layer hands its own to the cores that stand idle beside the meshes, as long as there are enough.
//
// Throws InputError, with core, phase, mesh, need, budget and the smallest mesh that would do, where a layer does not
// fit a core, where the weights fit the device but no square mesh of it holds the context, and, end to end, where the
// model or the context does not fit. (Of prefill or decode alone the paper times the layers that fit and scales: so
// does this, with a warning.) InvalidArgument on sizes < 1.
WaferPrediction predict_wafer(const PlmrDevice&, const WaferModel&, const WaferWork&);
// WaferPrediction::tokens_per_second by itself, of work that predict_wafer takes. Throws InputError as the layers'
// costs do.
double wafer_tokens_per_second(const PlmrDevice&, const WaferModel&, const WaferWork&);

// From the prefill's places to the decode's: weights and keys and values cross the middle of the wafer, half of them
// each way, over as many links as the prefill mesh is high. No less is possible; the paper calls it instant.
double transition_cycles(const PlmrDevice&, const WaferModel&, WaferMesh prefill_mesh, std::int64_t context);

// Of RegionRoom, which number regions must not exceed.
enum class RegionCount : std::uint8_t { side_by_side, by_cores };
// The cycles of prefill or of decode where weights and context fit the device whole, in so many regions; nothing where
// they do not. Throws InputError where a layer alone does not fit a core.
std::optional<double> fitting_cycles(const PlmrDevice&, const WaferModel&, const WaferWork&, RegionCount);
// Throws InputError, as predict_wafer does, where fitting_cycles() gives nothing for regions side by side.
void check_fits_side_by_side(const PlmrDevice&, const WaferModel&, const WaferWork&);

// Least and greatest `of(device)`, a time or a rate, as the constants of its programs take other values: those of the
// device's other fits where it has some (which were fitted with alpha and the ramps as they are), and beyond them twice
// `residual`; else each constant from low to high by itself, the logarithms of its times added in quadrature.
// A prediction takes as residual the fit's standard error, by which cells differ that were fitted; end to end, and for
// prompts of other lengths than the cells', the root mean square of the errors in table 2, of which none was fitted.
WaferRange range_over_constants(const PlmrDevice&, const std::function<double(const PlmrDevice&)>& of, double residual);

}  // namespace heddle
