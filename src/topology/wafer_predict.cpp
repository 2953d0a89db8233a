#include "topology/wafer_predict.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace heddle {
namespace {

constexpr Constant PlmrDevice::*kUncertain[] = {&PlmrDevice::alpha_cycles, &PlmrDevice::beta_cycles,
                                                &PlmrDevice::ramp_cycles,  &PlmrDevice::mac_cycles,
                                                &PlmrDevice::call_cycles,  &PlmrDevice::vector_slice_cycles,
                                                &PlmrDevice::value_cycles, &PlmrDevice::decode_serial_cycles};

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
  add_scaled(cost, prefill_layer_cost(device, model, work.prefill_mesh, work.context, work.method), model.num_layers);
  return cost;
}

// `output` tokens, of which the first follows `context` others. The cost changes where another row gets a token, that
// is once in `height` tokens.
WaferCost decode_cost(const PlmrDevice& device, const WaferModel& model, const WaferWork& work, std::int64_t output) {
  WaferCost cost;
  const std::int64_t rows = work.decode_mesh.height;
  for (std::int64_t at = work.context, end = work.context + output; at < end;) {
    const std::int64_t next = std::min(end, (at - 1) / rows * rows + rows + 1);
    add_scaled(cost, decode_layer_cost(device, model, work.decode_mesh, at, work.method, work.all_reduce),
               static_cast<double>(next - at) * model.num_layers);
    at = next;
  }
  return cost;
}

WaferCost cost_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  switch (work.phase) {
    case WaferPhase::prefill:
      return prefill_cost(device, model, work);
    case WaferPhase::decode:
      return decode_cost(device, model, work, std::max<std::int64_t>(work.output, 1));
    case WaferPhase::end_to_end: {
      const WaferCost prefill = prefill_cost(device, model, work);
      const WaferCost decode = decode_cost(device, model, work, work.output);
      WaferCost cost{.breakdown = {{"prefill", prefill.cycles()},
                                   {"transition", transition_cycles(device, model, work.prefill_mesh, work.context)},
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
  return static_cast<double>(std::max<std::int64_t>(work.output, 1));
}

// The least number of meshes that hold the weights, and `context` tokens' keys and values, of the whole model.
struct Placement {
  int regions = 0;
  double memory_bytes = 0;
};

// `beside`: bytes of a core that are neither.
Placement place(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, double context, double beside) {
  const double resident = (wafer_weight_bytes(model) + wafer_kv_bytes(model) * context) / cores_of(mesh);
  const double room = std::max(device.sram_bytes.value - beside, 1.0);
  const double regions = std::clamp(std::ceil(resident / room), 1.0, 1.0 * model.num_layers);
  return {static_cast<int>(regions), resident / regions + beside};
}

bool fits_device(const PlmrDevice& device, const Placement& placement, WaferMesh mesh) {
  return placement.regions * cores_of(mesh) <= device.num_cores.value;
}

void check_prefill_fits(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                        const Placement& placement) {
  if (fits_device(device, placement, work.prefill_mesh)) return;
  throw_error<InputError>(
      "prefill: weights take {:.3g} GB, {} regions of {} x {}, {:.0f} cores; {} has {:.0f}, {:.3g} GB in all",
      wafer_weight_bytes(model) / 1e9, placement.regions, work.prefill_mesh.width, work.prefill_mesh.height,
      placement.regions * cores_of(work.prefill_mesh), device.name, device.num_cores.value,
      device.num_cores.value * device.sram_bytes.value / 1e9);
}

void check_context_fits(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const KvCapacity kv = kv_capacity(device, model, work.decode_mesh);
  const std::int64_t tokens = work.context + work.output;
  if (tokens > kv.shift_tokens)
    throw_error<InputError>(
        "a context of {} tokens, {} more than the {} that the KV cache holds in {} region(s) of {} x {} on {}", tokens,
        tokens - kv.shift_tokens, kv.shift_tokens, kv.regions, work.decode_mesh.width, work.decode_mesh.height,
        device.name);
}

// Of a core, beside weights and cache: what the layer of the phase needs for itself; in decode at least the reserve.
double beside_bytes(const WaferCost& cost, WaferPhase phase) {
  const double own = cost.memory_bytes - cost.resident_bytes;
  return phase == WaferPhase::prefill ? own : std::max(own, KvCapacityOptions{}.reserve_bytes);
}

WaferWork prefill_of(WaferWork work) {
  work.phase = WaferPhase::prefill;
  return work;
}

Placement place_phase(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const std::int64_t end = work.context + work.output;
  if (work.phase == WaferPhase::prefill) {
    const WaferCost layer = prefill_layer_cost(device, model, work.prefill_mesh, work.context);
    return place(device, model, work.prefill_mesh, 0, beside_bytes(layer, WaferPhase::prefill));
  }
  const WaferCost layer = decode_layer_cost(device, model, work.decode_mesh, end, work.all_reduce);
  return place(device, model, work.decode_mesh, static_cast<double>(end), beside_bytes(layer, WaferPhase::decode));
}

WaferMesh& mesh_of(WaferWork& work) {
  return work.phase == WaferPhase::prefill ? work.prefill_mesh : work.decode_mesh;
}

// The side of the smallest larger square mesh of the device on which place_phase() fits a core; 0: none.
int fitting_side(const PlmrDevice& device, const WaferModel& model, WaferWork work) {
  const WaferMesh mesh = mesh_of(work);
  const auto most = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  for (int side = std::max(mesh.width, mesh.height) + 1; side <= most; ++side) {
    mesh_of(work) = {side, side};
    try {
      if (place_phase(device, model, work).memory_bytes <= device.sram_bytes.value) return side;
    } catch (const InputError&) {  // of the layer alone
    }
  }
  return 0;
}

// Where a core that has but a part of one layer is still too small, no number of regions helps.
void check_memory(const PlmrDevice& device, const WaferModel& model, WaferWork work, const Placement& placement) {
  if (placement.memory_bytes <= device.sram_bytes.value) return;
  const WaferMesh mesh = mesh_of(work);
  const int side = fitting_side(device, model, work);
  throw_error<InputError>(
      "{}: a core of {} needs {:.0f} of {:.0f} bytes where each of {} layers has a region of {} x {}; {}",
      work.phase == WaferPhase::prefill ? "prefill" : "decode", device.name, placement.memory_bytes,
      device.sram_bytes.value, model.num_layers, mesh.width, mesh.height,
      side > 0 ? fmt::format("the smallest square mesh that would do is {} x {}", side, side)
               : "no square mesh of the device would do");
}

}  // namespace

double transition_cycles(const PlmrDevice& device, const WaferModel& model, WaferMesh prefill_mesh,
                         std::int64_t context) {
  const double bytes = wafer_weight_bytes(model) + wafer_kv_bytes(model) * static_cast<double>(context);
  return bytes / 4 / (prefill_mesh.height * device.link_bytes_per_cycle.value);
}

WaferRange range_over_constants(const PlmrDevice& device, const std::function<double(const PlmrDevice&)>& of) {
  const double middle = of(device);
  if (!device.other_fits.empty()) {
    WaferRange range{middle, middle};
    PlmrDevice other = device;
    for (const auto& fit : device.other_fits) {
      for (std::size_t i = 0; i < fit.size(); ++i) (other.*kFittedConstants[i]).value = fit[i];
      const double value = of(other);
      range = {std::min(range.low, value), std::max(range.high, value)};
    }
    const double beyond = 2 * device.fit_residual * middle;
    return {range.low - beyond, range.high + beyond};
  }
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

double fitting_cycles(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  if (work.phase != WaferPhase::decode)
    check_prefill_fits(device, model, work, place_phase(device, model, prefill_of(work)));
  if (work.phase != WaferPhase::prefill) check_context_fits(device, model, work);
  return cost_of(device, model, work).cycles();
}

WaferPrediction predict_wafer(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  require(work.context > 0, "a context of {} tokens", work.context);
  require(work.phase != WaferPhase::end_to_end || work.output > 0, "{} tokens of output", work.output);
  WaferPrediction prediction;
  const WaferMesh mesh = work.phase == WaferPhase::prefill ? work.prefill_mesh : work.decode_mesh;
  if (work.phase == WaferPhase::end_to_end) {
    const Placement prefill = place_phase(device, model, prefill_of(work));
    check_prefill_fits(device, model, work, prefill);
    check_memory(device, model, prefill_of(work), prefill);
    check_context_fits(device, model, work);
  }
  const Placement placement = place_phase(device, model, work);
  if (work.phase == WaferPhase::decode) {
    const Placement weights = place(device, model, mesh, 0, KvCapacityOptions{}.reserve_bytes);
    if (fits_device(device, weights, mesh) && !fits_device(device, placement, mesh))
      check_context_fits(device, model, work);
  }
  check_memory(device, model, work, placement);
  prediction.cost = cost_of(device, model, work);
  prediction.regions = placement.regions;
  if (work.phase == WaferPhase::prefill)
    prediction.uncounted_kv_bytes =
        wafer_kv_bytes(model) * static_cast<double>(work.context) / cores_of(mesh) / placement.regions;
  prediction.cost.memory_bytes = placement.memory_bytes;
  prediction.devices = placement.regions * cores_of(mesh) / device.num_cores.value;

  const double tokens = tokens_of(work);
  const auto rate = [&](const PlmrDevice& d) { return tokens / d.seconds(cost_of(d, model, work).cycles()); };
  prediction.tokens_per_second = tokens / device.seconds(prediction.cost.cycles());
  prediction.range = range_over_constants(device, rate);
  return prediction;
}

}  // namespace heddle
