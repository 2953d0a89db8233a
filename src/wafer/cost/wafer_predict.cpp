#include "wafer/cost/wafer_predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "wafer/cost/model_error.h"
#include "wafer/cost/wafer_budgets.h"

namespace heddle {
namespace {

constexpr Constant PlmrDevice::*kUncertain[] = {&PlmrDevice::alpha_cycles,  &PlmrDevice::beta_cycles,
                                                &PlmrDevice::ramp_cycles,   &PlmrDevice::mac_cycles,
                                                &PlmrDevice::call_cycles,   &PlmrDevice::vector_slice_cycles,
                                                &PlmrDevice::value_cycles,  &PlmrDevice::decode_serial_cycles,
                                                &PlmrDevice::tile_rounding, &PlmrDevice::baseline_scale};

double cores_of(WaferMesh mesh) {
  return static_cast<double>(mesh.width) * mesh.height;
}

void add_scaled(WaferCost& total, const WaferCost& layer, double times) {
  for (const WaferCost::Part& part : layer.breakdown) total.add(part.name, part.cycles * times, part.basis);
  total.memory_bytes = std::max(total.memory_bytes, layer.memory_bytes);
  total.resident_bytes = std::max(total.resident_bytes, layer.resident_bytes);
  total.routes = std::max(total.routes, layer.routes);
}

WaferCost prefill_cost(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  WaferCost cost;
  const WaferCost layer = work.method == WaferMethod::waferllm
                              ? prefill_layer_cost(device, model, work.prefill_mesh, work.context, work.all_reduce.sync)
                              : prefill_layer_cost(device, model, work.prefill_mesh, work.context, work.method);
  add_scaled(cost, layer, model.num_layers);
  return cost;
}

// Decodes `output` tokens, the first of them after `context` others. The cost changes only when the rows of the KV
// cache become one token longer, once in `height` tokens.
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

WaferPlacement place(const PlmrDevice& device, const WaferModel& model, const WaferWork& work);

// With what handing keys and values to idle cores takes, layer by layer, where the mesh has no room for them.
WaferCost prefill_with_spill(const PlmrDevice& device, const WaferModel& model, WaferWork work) {
  WaferCost cost = prefill_cost(device, model, work);
  work.phase = WaferPhase::prefill;
  const WaferPlacement placement = place(device, model, work);
  if (work.method != WaferMethod::waferllm || placement.kv_beside == 0) return cost;
  const WaferMesh mesh = work.prefill_mesh;
  const double values = placement.kv_beside / kValueBytes / model.num_layers / mesh.width / mesh.height;
  cost.add("KV spill", model.num_layers * spill_cycles(device, mesh, values));
  return cost;
}

WaferCost cost_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  switch (work.phase) {
    case WaferPhase::prefill:
      return prefill_with_spill(device, model, work);
    case WaferPhase::decode:
      return decode_cost(device, model, work, std::max<std::int64_t>(work.output, 1));
    case WaferPhase::end_to_end: {
      const WaferCost prefill = prefill_with_spill(device, model, work);
      const WaferCost decode = decode_cost(device, model, work, work.output);
      // The baselines do not move the model between equal meshes; between different ones they would have to.
      const bool stays = work.method != WaferMethod::waferllm && work.prefill_mesh.width == work.decode_mesh.width &&
                         work.prefill_mesh.height == work.decode_mesh.height;
      const double moves = stays ? 0 : transition_cycles(device, model, work.prefill_mesh, work.context);
      WaferCost cost;
      for (const WaferCost::Part& part : prefill.breakdown) cost.add("prefill", part.cycles, part.basis);
      cost.add("transition", moves);
      for (const WaferCost::Part& part : decode.breakdown) cost.add("decode", part.cycles, part.basis);
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

WaferMesh mesh_of(const WaferWork& work) {
  return work.phase == WaferPhase::prefill ? work.prefill_mesh : work.decode_mesh;
}

std::string_view name_of(WaferPhase phase) {
  return phase == WaferPhase::prefill ? "prefill" : "decode";
}

double cores_of(const PlmrDevice& device) {
  return device.mesh_width.value * device.mesh_height.value;
}

WaferPlacement spread_over(double regions, double resident, double kv, double beside) {
  return {.regions = static_cast<int>(regions), .memory_bytes = resident / regions + beside, .kv_bytes = kv / regions};
}

// Bytes of a core in one region: weights, the request's keys and values, and what else the phase needs.
struct Need {
  double weights, kv, beside;
};

Need need_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const WaferMesh mesh = mesh_of(work);
  const double cores = cores_of(mesh), weights = wafer_weight_bytes(model) / cores;
  if (work.phase == WaferPhase::prefill) {
    const WaferCost layer = prefill_layer_cost(device, model, mesh, work.context, work.method);
    return {weights, wafer_kv_bytes(model) * static_cast<double>(work.context) / cores,
            layer.memory_bytes - layer.resident_bytes};
  }
  const std::int64_t end = work.context + work.output;
  const WaferCost layer = decode_layer_cost(device, model, mesh, end, work.method, work.all_reduce);
  const double reserve = work.method == WaferMethod::waferllm ? KvCapacityOptions{}.reserve_bytes : 0;  // as in table 5
  return {weights, wafer_kv_bytes(model) * static_cast<double>(end) / cores,
          std::max(layer.memory_bytes - layer.resident_bytes, reserve)};
}

// The least number of meshes that hold everything. If they do not fit side by side, prefill hands keys and values to
// the cores beside its meshes, layer by layer; the baselines treat all cores as one memory.
WaferPlacement place(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const auto [weights, kv, beside] = need_of(device, model, work);
  const WaferMesh mesh = mesh_of(work);
  const double sram = device.sram_bytes.value, room = std::max(sram - beside, 1.0), cores = cores_of(mesh);
  const int most = std::min(region_room(device, mesh).side_by_side, model.num_layers);
  const auto least = [&](double resident) {
    return std::clamp(std::ceil(resident / room), 1.0, 1.0 * model.num_layers);
  };
  const WaferPlacement together = spread_over(least(weights + kv), weights + kv, kv, beside);
  if (together.regions <= most) return together;
  if (work.method != WaferMethod::waferllm) {
    const double spread = (weights + kv) * cores / cores_of(device);
    if (spread > room) return together;
    return {.regions = most,
            .memory_bytes = spread + beside,
            .kv_bytes = kv * cores / cores_of(device),
            .kv_beside = kv * cores};
  }
  if (work.phase != WaferPhase::prefill) return together;
  WaferPlacement apart = spread_over(least(weights), weights, 0, beside);
  apart.kv_beside = kv * cores;
  const auto idle = idle_cores_below(device, mesh, apart.regions);
  const double of_a_region = kv * cores / apart.regions;
  const bool fits = idle && apart.memory_bytes <= sram && of_a_region <= 1.0 * idle->width * idle->height * sram;
  return apart.regions <= most && fits ? apart : together;
}

bool fits_device(const PlmrDevice& device, const WaferPlacement& placement, WaferMesh mesh,
                 RegionCount count = RegionCount::by_cores) {
  const RegionRoom has = region_room(device, mesh);
  return placement.regions <= (count == RegionCount::by_cores ? has.by_cores : has.side_by_side);
}

WaferWork on_mesh(WaferWork work, WaferMesh mesh) {
  (work.phase == WaferPhase::prefill ? work.prefill_mesh : work.decode_mesh) = mesh;
  return work;
}

WaferWork in_phase(WaferWork work, WaferPhase phase) {
  work.phase = phase;
  return work;
}

// The smallest square mesh of the device on which a phase fits; `fits` judges a placement.
template <class Fits>
std::string smallest_square_that(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                                 const Fits& fits) {
  const auto most = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  for (int side = 3; side <= most; ++side) {
    const WaferMesh square{side, side};
    try {
      const WaferPlacement placement = place(device, model, on_mesh(work, square));
      if (placement.memory_bytes <= device.sram_bytes.value && fits(placement, square))
        return fmt::format("the smallest square mesh that would do is {} x {}, in {} region(s)", side, side,
                           placement.regions);
    } catch (const InputError&) {  // thrown for the layer alone
    }
  }
  return fmt::format("no square mesh of it would do, up to {} x {}", most, most);
}

void check_fits(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                const WaferPlacement& placement, RegionCount count) {
  const WaferMesh mesh = mesh_of(work);
  if (fits_device(device, placement, mesh, count)) return;
  const std::int64_t tokens = work.context + (work.phase == WaferPhase::decode ? work.output : 0);
  const double bytes = wafer_weight_bytes(model) + wafer_kv_bytes(model) * static_cast<double>(tokens);
  const RegionRoom has = region_room(device, mesh);
  throw_error<InputError>(
      "{}: weights, keys and values take {:.4g} GB, {} regions of {} x {}, {:.0f} cores; {} has {:.0f}, {:.4g} GB in "
      "all, {} "
      "such regions by their number, {} side by side; {}",
      name_of(work.phase), bytes / 1e9, placement.regions, mesh.width, mesh.height, placement.regions * cores_of(mesh),
      device.name, device.num_cores.value, device.num_cores.value * device.sram_bytes.value / 1e9, has.by_cores,
      has.side_by_side, smallest_square_that(device, model, work, [&](const WaferPlacement& p, WaferMesh square) {
        return fits_device(device, p, square, count);
      }));
}

struct ContextRoom {
  bool somewhere = false;  // on a square mesh of the device
  std::string text;
};

ContextRoom where_context_fits(const PlmrDevice& device, const WaferModel& model, std::int64_t tokens) {
  const auto most = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  std::int64_t longest = 0;
  int longest_side = 0;
  for (int side = 3; side <= most; ++side) {
    std::int64_t holds = 0;
    try {
      holds = kv_capacity(device, model, {side, side}).shift_tokens;
    } catch (const InputError&) {  // not even the weights fit
    }
    if (holds >= tokens) return {true, fmt::format("the smallest square mesh that would do is {} x {}", side, side)};
    if (holds > longest) longest = holds, longest_side = side;
  }
  return {false, fmt::format("no square mesh of it would do: {} x {} holds the most, {}", longest_side, longest_side,
                             longest)};
}

bool holds_context(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  if (work.method != WaferMethod::waferllm) return true;  // one memory, which place() has checked
  return work.context + work.output <= kv_capacity(device, model, work.decode_mesh).shift_tokens;
}

// Describes a context that the mesh's regions do not hold.
std::string context_text(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                         const ContextRoom& room) {
  const KvCapacity kv = kv_capacity(device, model, work.decode_mesh);
  const std::int64_t tokens = work.context + work.output;
  return fmt::format(
      "decode: a context of {} tokens, {} more than the {} that the KV cache holds in {} region(s) of {} x {} on {}; "
      "{}",
      tokens, tokens - kv.shift_tokens, kv.shift_tokens, kv.regions, work.decode_mesh.width, work.decode_mesh.height,
      device.name, room.text);
}

void check_context_fits(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  if (holds_context(device, model, work)) return;
  throw InputError(context_text(device, model, work, where_context_fits(device, model, work.context + work.output)));
}

// Decode alone is timed by the layers that fit, even if weights or context exceed the meshes (the paper does so for
// Llama-2-13B on 480 x 480). What no mesh of the device holds is an error.
void check_context_fits_somewhere(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                                  std::vector<std::string>& warnings) {
  if (holds_context(device, model, work)) return;
  const ContextRoom room = where_context_fits(device, model, work.context + work.output);
  const std::string text = context_text(device, model, work, room);
  if (!room.somewhere) throw InputError(text);
  warnings.push_back(text);
}

// If a core is too small even for its part of a single layer, no number of regions helps.
void check_memory(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                  const WaferPlacement& placement) {
  if (placement.memory_bytes <= device.sram_bytes.value) return;
  const WaferMesh mesh = mesh_of(work);
  throw_error<InputError>(
      "{}: core (0, 0) of {} x {} needs {:.0f} bytes, but a core of {} has {:.0f}, {:.0f} too few, where each of {} "
      "layers has "
      "a region; {}",
      name_of(work.phase), mesh.width, mesh.height, placement.memory_bytes, device.name, device.sram_bytes.value,
      placement.memory_bytes - device.sram_bytes.value, model.num_layers,
      smallest_square_that(device, model, work, [](const WaferPlacement&, WaferMesh) { return true; }));
}

// Warnings about the placement of a phase.
void add_warnings(const PlmrDevice& device, const WaferWork& work, const WaferPlacement& placement,
                  std::vector<std::string>& warnings) {
  const WaferMesh mesh = mesh_of(work);
  const RegionRoom has = region_room(device, mesh);
  const std::string regions =
      fmt::format("{}: {} region(s) of {} x {}, of which {} x {} cores of {} hold {} side by side", name_of(work.phase),
                  placement.regions, mesh.width, mesh.height, device.mesh_width.value, device.mesh_height.value,
                  device.name, has.side_by_side);
  if (placement.regions > has.by_cores)
    warnings.push_back(regions + ": the time is that of the layers which fit, scaled");
  else if (placement.regions > has.side_by_side)
    warnings.push_back(fmt::format("{}: counted by {:.0f} cores, as the paper counts, {}", regions,
                                   device.num_cores.value, has.by_cores));
  if (placement.kv_beside > 0 && work.method == WaferMethod::waferllm)
    warnings.push_back(fmt::format(
        "prefill: the prompt's keys and values, {:.4g} GB, lie on the cores beside its region(s), in the rows below "
        "{}, layer by layer: relayed down each column, which \"KV spill\" counts",
        placement.kv_beside / 1e9, work.prefill_mesh.height));
  if (placement.kv_beside > 0 && work.method != WaferMethod::waferllm)
    warnings.push_back(fmt::format("{}: weights, keys and values are spread over all {:.0f} cores, as one memory",
                                   name_of(work.phase), cores_of(device)));
}

// GEMMs take as many steps as the least common multiple of the sides.
void warn_of_steps(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                   std::vector<std::string>& warnings) {
  if (work.phase == WaferPhase::decode || work.method != WaferMethod::waferllm) return;
  const auto better = evener_mesh(work.prefill_mesh);
  if (!better) return;
  std::string instead;
  try {
    const double cycles = prefill_layer_cost(device, model, work.prefill_mesh, work.context, work.method).cycles();
    const double there = prefill_layer_cost(device, model, *better, work.context, work.method).cycles();
    instead = fmt::format("; {} x {} takes {:.4g} times fewer cycles", better->width, better->height, cycles / there);
  } catch (const InputError&) {  // too small for a layer
  }
  warnings.push_back(gemm_steps_text(work.prefill_mesh) + instead);
}

}  // namespace

double transition_cycles(const PlmrDevice& device, const WaferModel& model, WaferMesh prefill_mesh,
                         std::int64_t context) {
  const double bytes = wafer_weight_bytes(model) + wafer_kv_bytes(model) * static_cast<double>(context);
  return bytes / 4 / (prefill_mesh.height * device.link_bytes_per_cycle.value);
}

WaferRange range_over_constants(const PlmrDevice& device, const std::function<double(const PlmrDevice&)>& of,
                                double margin) {
  const double middle = of(device);
  if (!device.other_fits.empty()) {
    WaferRange range{middle, middle};
    PlmrDevice other = device;
    for (const auto& fit : device.other_fits) {
      for (std::size_t i = 0; i < fit.size(); ++i) (other.*kVariedConstants[i]).value = fit[i];
      const double value = of(other);
      range = {std::min(range.low, value), std::max(range.high, value)};
    }
    return {range.low / (1 + margin), range.high / (1 - margin)};
  }
  double below = 0, above = 0;
  const auto add = [&](double value) {
    const double times = std::log(value / middle);
    (times < 0 ? below : above) += times * times;
  };
  for (Constant PlmrDevice::*constant : kUncertain)
    for (const double value : {(device.*constant).low, (device.*constant).high}) {
      PlmrDevice other = device;
      (other.*constant).value = value;
      add(of(other));
    }
  return {middle * std::exp(-std::sqrt(below)), middle * std::exp(std::sqrt(above))};
}

namespace {

// The fitted cells have prompts of 4096 tokens; only table 2 has other lengths.
constexpr std::int64_t kFittedPrompt = 4096;
constexpr int kFittedPrefillSides[] = {480, 720}, kFittedDecodeSides[] = {420, 660};

bool is_square(WaferMesh mesh) {
  return mesh.width == mesh.height;
}

bool prefills(const WaferWork& work) {
  return work.phase != WaferPhase::decode;
}

bool decodes(const WaferWork& work) {
  return work.phase != WaferPhase::prefill;
}

bool is_oblong(const WaferWork& work) {
  return (prefills(work) && !is_square(work.prefill_mesh)) || (decodes(work) && !is_square(work.decode_mesh));
}

// Meshes shaped like the prefill mesh whose sides differ by at most one per cent, or the next ones: tile rounding may
// step between them. Empty if the next one is several per cent away.
std::vector<WaferMesh> neighbours_of(WaferMesh mesh) {
  constexpr int kCoarsest = 33;
  const int parts = std::gcd(mesh.width, mesh.height), reach = std::max(parts / 100, 1);
  std::vector<WaferMesh> neighbours;
  if (parts < kCoarsest) return neighbours;
  for (int other = parts - reach; other <= parts + reach; ++other)
    if (other != parts) neighbours.push_back({mesh.width / parts * other, mesh.height / parts * other});
  return neighbours;
}

// Of this kind of cells, for WaferLLM's programs: the fit's standard error and twice that for fitted kinds; end to end,
// and for prompts of other lengths, table 2's, which is held out from the fit.
ModelError error_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const bool as_fitted =
      work.phase == WaferPhase::decode || (work.phase == WaferPhase::prefill && work.context == kFittedPrompt);
  if (as_fitted || device.other_fits.empty()) return {.rms = device.fit_residual, .margin = 2 * device.fit_residual};
  return end_to_end_error(work.method, model.hidden, work.context, work.output);
}

WaferRange constants_range_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                              const std::function<double(const PlmrDevice&)>& rate) {
  if (work.method == WaferMethod::waferllm)
    return range_over_constants(device, rate, error_of(device, model, work).margin);
  const BaselineErrors errors = baseline_errors(work.method);
  const double part = work.phase == WaferPhase::prefill ? errors.prefill
                      : work.phase == WaferPhase::decode
                          ? errors.decode
                          : end_to_end_error(work.method, model.hidden, work.context, work.output).margin;
  const WaferRange range = range_over_constants(device, rate, 0);
  return {range.low / (1 + part), range.high / (1 - part)};
}

WaferRange range_of(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const auto rate_on = [&](const PlmrDevice& d, const WaferWork& there) {
    return wafer_tokens_per_second(d, model, there);
  };
  WaferRange range = constants_range_of(device, model, work, [&](const PlmrDevice& d) { return rate_on(d, work); });
  if (work.method != WaferMethod::waferllm) return range;
  const auto [rms, margin] = error_of(device, model, work);
  if (prefills(work))
    for (const WaferMesh mesh : neighbours_of(work.prefill_mesh)) {
      try {
        WaferWork there = work;
        there.prefill_mesh = mesh;
        const double rate = rate_on(device, there);
        range = {std::min(range.low, rate / (1 + margin)), std::max(range.high, rate / (1 - margin))};
      } catch (const InputError&) {  // larger than the device, or too small for a layer
      }
    }
  if (!is_oblong(work)) return range;
  return {range.low / (1 + rms), range.high / (1 - rms)};
}

// Notes on meshes that differ from those the constants were fitted to.
void add_mesh_notes(const WaferWork& work, std::vector<std::string>& notes) {
  if (is_oblong(work))
    notes.push_back(
        "no oblong mesh was measured: cells of tables 2 to 4 are of square ones; the range has the model's "
        "error once more");
  const auto outside = [&](const char* phase, WaferMesh mesh, const int(&sides)[2]) {
    if (std::min(mesh.width, mesh.height) >= sides[0] && std::max(mesh.width, mesh.height) <= sides[1]) return;
    notes.push_back(fmt::format("{} was fitted on {} to {} cores a side; {} x {} is outside", phase, sides[0], sides[1],
                                mesh.width, mesh.height));
  };
  if (prefills(work)) outside("prefill", work.prefill_mesh, kFittedPrefillSides);
  if (decodes(work)) outside("decode", work.decode_mesh, kFittedDecodeSides);
}

}  // namespace

std::optional<double> fitting_cycles(const PlmrDevice& device, const WaferModel& model, const WaferWork& work,
                                     RegionCount count) {
  require(work.phase != WaferPhase::end_to_end, "one phase at a time");
  const WaferPlacement placement = place(device, model, work);
  if (placement.memory_bytes > device.sram_bytes.value || !fits_device(device, placement, mesh_of(work), count))
    return std::nullopt;
  if (work.phase == WaferPhase::decode && !holds_context(device, model, work)) return std::nullopt;
  return cost_of(device, model, work).cycles();
}

void check_fits_side_by_side(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  const std::int64_t tokens = work.context + work.output;
  if (work.phase == WaferPhase::decode)  // first, because it states how many tokens the best mesh holds
    if (const ContextRoom room = where_context_fits(device, model, tokens); !room.somewhere)
      throw_error<InputError>("decode: a context of {} tokens; {}", tokens, room.text);
  if (work.phase == WaferPhase::decode) check_context_fits(device, model, work);
  const WaferPlacement placement = place(device, model, work);
  check_memory(device, model, work, placement);
  check_fits(device, model, work, placement, RegionCount::side_by_side);
}

double wafer_tokens_per_second(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  return tokens_of(work) / device.seconds(cost_of(device, model, work).cycles());
}

WaferPrediction predict_wafer(const PlmrDevice& device, const WaferModel& model, const WaferWork& work) {
  require(work.context > 0, "a context of {} tokens", work.context);
  require(work.phase != WaferPhase::end_to_end || work.output > 0, "{} tokens of output", work.output);
  WaferPrediction prediction;
  if (work.phase == WaferPhase::end_to_end) {
    const WaferWork prefill = in_phase(work, WaferPhase::prefill);
    const WaferPlacement placement = place(device, model, prefill);
    check_memory(device, model, prefill, placement);
    check_fits(device, model, prefill, placement, RegionCount::by_cores);
    check_context_fits(device, model, work);
    add_warnings(device, prefill, placement, prediction.warnings);
    prediction.prefill_placement = placement;
  }
  const WaferWork last = work.phase == WaferPhase::prefill ? work : in_phase(work, WaferPhase::decode);
  const WaferMesh mesh = mesh_of(last);
  const WaferPlacement placement = place(device, model, last);
  if (work.phase == WaferPhase::decode) {
    const double cores = cores_of(mesh), room = device.sram_bytes.value - KvCapacityOptions{}.reserve_bytes;
    const bool weights_fit = wafer_weight_bytes(model) / cores <= room * region_room(device, mesh).by_cores;
    if (weights_fit && !fits_device(device, placement, mesh))
      check_context_fits_somewhere(device, model, work, prediction.warnings);
  }
  check_memory(device, model, last, placement);
  if (work.phase == WaferPhase::end_to_end) check_fits(device, model, last, placement, RegionCount::by_cores);
  add_warnings(device, last, placement, prediction.warnings);
  warn_of_steps(device, model, work, prediction.warnings);
  prediction.cost = cost_of(device, model, work);
  prediction.regions = placement.regions;
  prediction.room = region_room(device, mesh);
  prediction.kv_bytes = placement.kv_bytes;
  prediction.cost.memory_bytes = std::max(placement.memory_bytes, prediction.prefill_placement.memory_bytes);
  prediction.devices = 1.0 * placement.regions / prediction.room.side_by_side;

  prediction.tokens_per_second = tokens_of(work) / device.seconds(prediction.cost.cycles());
  prediction.range = range_of(device, model, work);
  if (!device.other_fits.empty() && work.method == WaferMethod::waferllm) add_mesh_notes(work, prediction.notes);
  if (model.num_kv_heads != model.num_heads && work.method == WaferMethod::waferllm)
    prediction.notes.push_back(fmt::format(
        "time is that of K and V for all {} heads, as the program that the paper measured computes them; the "
        "model's {} KV heads count in memory alone",
        model.num_heads, model.num_kv_heads));
  if (work.method == WaferMethod::waferllm && work.phase != WaferPhase::decode &&
      work.context < std::max(work.prefill_mesh.width, work.prefill_mesh.height))
    prediction.notes.push_back(
        fmt::format("a prompt of {} tokens on {} x {} cores: rows of cores without a token do what "
                    "the others do, so that fewer tokens cost little less",
                    work.context, work.prefill_mesh.width, work.prefill_mesh.height));
  if (!device.other_fits.empty()) return prediction;
  prediction.notes.push_back(fmt::format(
      "{}: no program was measured on it; its programs' constants are WSE-2's, and the range is what they may be off",
      device.name));
  return prediction;
}

}  // namespace heddle
