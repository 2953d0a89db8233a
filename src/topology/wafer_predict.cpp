#include "topology/wafer_predict.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace heddle {
namespace {

constexpr Constant PlmrDevice::*kUncertain[] = {&PlmrDevice::alpha_cycles,        &PlmrDevice::beta_cycles,
                                                &PlmrDevice::ramp_cycles,         &PlmrDevice::mac_cycles,
                                                &PlmrDevice::call_cycles,         &PlmrDevice::vector_slice_cycles,
                                                &PlmrDevice::decode_serial_cycles};

double cores_of(WaferMesh mesh) {
  return static_cast<double>(mesh.width) * mesh.height;
}

void add_scaled(WaferCost& total, const WaferCost& layer, double times) {
  for (const WaferCost::Part& part : layer.breakdown) {
    const auto same = std::ranges::find(total.breakdown, part.name, &WaferCost::Part::name);
    if (same == total.breakdown.end())
      total.breakdown.push_back({part.name, part.cycles * times});
    else
      same->cycles += part.cycles * times;
  }
  total.memory_bytes = std::max(total.memory_bytes, layer.memory_bytes);
  total.resident_bytes = std::max(total.resident_bytes, layer.resident_bytes);
  total.routes = std::max(total.routes, layer.routes);
}

WaferCost prefill_cost(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  WaferCost cost;
  add_scaled(cost, prefill_layer_cost(device, model, work.prefill_mesh, work.context), model.num_layers);
  return cost;
}

// `output` tokens, of which the first follows `context` others. The cost changes where another row gets a token, that
// is once in `height` tokens.
WaferCost decode_cost(const PlmrDevice& device, const WaferModel& model, const WaferWork& work, std::int64_t output) {
  WaferCost cost;
  const std::int64_t rows = work.decode_mesh.height;
  for (std::int64_t at = work.context, end = work.context + output; at < end;) {
    const std::int64_t next = std::min(end, (at - 1) / rows * rows + rows + 1);
    add_scaled(cost, decode_layer_cost(device, model, work.decode_mesh, at),
               static_cast<double>(next - at) * model.num_layers);
    at = next;
  }
  return cost;
}

// From the prefill's places to the decode's: weights and keys and values cross the middle of the wafer, half of them
// each way, over as many links as the prefill mesh is high. No less is possible; the paper calls it instant.
double transition_cycles(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const double bytes = wafer_weight_bytes(model) + wafer_kv_bytes(model) * static_cast<double>(work.context);
  return bytes / 4 / (work.prefill_mesh.height * device.link_bytes_per_cycle.value);
}

WaferCost cost_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  switch (work.phase) {
    case WaferPhase::prefill:
      return prefill_cost(device, model, work);
    case WaferPhase::decode:
      return decode_cost(device, model, work, 1);
    case WaferPhase::end_to_end: {
      const WaferCost prefill = prefill_cost(device, model, work);
      const WaferCost decode = decode_cost(device, model, work, work.output);
      WaferCost cost{.breakdown = {{"prefill", prefill.cycles()},
                                   {"transition", transition_cycles(device, model, work)},
                                   {"decode", decode.cycles()}}};
      cost.memory_bytes = std::max(prefill.memory_bytes, decode.memory_bytes);
      cost.routes = std::max(prefill.routes, decode.routes);
      return cost;
    }
  }
  throw_error<InvalidArgument>("no such phase");
}

double tokens_of(const WaferWork& work) {
  if (work.phase == WaferPhase::prefill) return static_cast<double>(work.context);
  return work.phase == WaferPhase::decode ? 1 : static_cast<double>(work.output);
}

// Memory of the whole model in regions of one mesh: what every layer leaves on its cores, and what one needs beside.
struct Placement {
  int regions = 0;
  double memory_bytes = 0;
};

Placement place(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, double context, double beside) {
  const double resident = (wafer_weight_bytes(model) + wafer_kv_bytes(model) * context) / cores_of(mesh);
  const double room = device.sram_bytes.value - beside;
  const double regions = std::clamp(std::ceil(resident / std::max(room, 1.0)), 1.0, 1.0 * model.num_layers);
  return {static_cast<int>(regions), resident / regions + beside};
}

}  // namespace

WaferRange range_over_constants(const PlmrDevice& device, const std::function<double(const PlmrDevice&)>& of) {
  const double middle = of(device);
  double below = 0, above = 0;
  const auto add = [&](double value) {
    const double difference = value - middle;
    (difference < 0 ? below : above) += difference * difference;
  };
  for (Constant PlmrDevice::*constant : kUncertain)
    for (const double value : {(device.*constant).low, (device.*constant).high}) {
      PlmrDevice other = device;
      (other.*constant).value = value;
      add(of(other));
    }
  return {middle - std::sqrt(below), middle + std::sqrt(above)};
}

WaferPrediction predict_wafer(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  require(work.context > 0, "a context of {} tokens", work.context);
  require(work.phase != WaferPhase::end_to_end || work.output > 0, "{} tokens of output", work.output);
  WaferPrediction prediction;
  prediction.cost = cost_of(device, model, work);
  const double tokens = tokens_of(work);
  const auto rate = [&](const PlmrDevice& d) { return tokens / d.seconds(cost_of(d, model, work).cycles()); };
  prediction.tokens_per_second = rate(device);
  prediction.range = range_over_constants(device, rate);
  prediction.joules = device.joules(prediction.cost.cycles());

  const double context = static_cast<double>(work.context);
  const WaferMesh mesh = work.phase == WaferPhase::prefill ? work.prefill_mesh : work.decode_mesh;
  const double beside = prediction.cost.memory_bytes - prediction.cost.resident_bytes;
  const Placement placement = place(device, model, mesh, context + static_cast<double>(work.output), beside);
  prediction.regions = placement.regions;
  prediction.cost.memory_bytes = placement.memory_bytes;
  prediction.devices = placement.regions * cores_of(mesh) / device.num_cores.value;
  return prediction;
}

}  // namespace heddle
