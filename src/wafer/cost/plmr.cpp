#include "wafer/cost/plmr.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "wafer/cost/wse2_fit.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

constexpr std::array<std::string_view, 5> kPresetNames{"wse-2", "wse-3", "blackhole", "wormhole", "dojo"};

constexpr double kMostOfAnything = 1e12;  // upper bound where there is no other: sums of costs do not overflow

constexpr std::array<PlmrField, 21> kFields{{
    {"mesh_width", &PlmrDevice::mesh_width, 3, 65535, true},
    {"mesh_height", &PlmrDevice::mesh_height, 3, 65535, true},
    {"num_cores", &PlmrDevice::num_cores, 9, 4294836225, true},
    {"clock_ghz", &PlmrDevice::clock_ghz, 1e-3, 1e3, false},
    {"alpha_cycles", &PlmrDevice::alpha_cycles, 0, kMostOfAnything, false},
    {"beta_cycles", &PlmrDevice::beta_cycles, 0, kMostOfAnything, false},
    {"ramp_cycles", &PlmrDevice::ramp_cycles, 0, kMostOfAnything, false},
    {"link_bytes_per_cycle", &PlmrDevice::link_bytes_per_cycle, 1e-6, kMostOfAnything, false},
    {"sram_bytes", &PlmrDevice::sram_bytes, 1, kMostOfAnything, true},
    {"sram_read_bytes_per_cycle", &PlmrDevice::sram_read_bytes_per_cycle, 1e-6, kMostOfAnything, false},
    {"routes", &PlmrDevice::routes, 1, 1e9, true},
    {"free_routes", &PlmrDevice::free_routes, 1, 1e9, true},
    {"peak_macs_per_cycle", &PlmrDevice::peak_macs_per_cycle, 1e-6, kMostOfAnything, false},
    {"mac_cycles", &PlmrDevice::mac_cycles, 1e-6, kMostOfAnything, false},
    {"call_cycles", &PlmrDevice::call_cycles, 0, kMostOfAnything, false},
    {"vector_slice_cycles", &PlmrDevice::vector_slice_cycles, 0, kMostOfAnything, false},
    {"value_cycles", &PlmrDevice::value_cycles, 0, kMostOfAnything, false},
    {"decode_serial_cycles", &PlmrDevice::decode_serial_cycles, 0, kMostOfAnything, false},
    {"power_watts", &PlmrDevice::power_watts, 1e-6, kMostOfAnything, false},
    {"tile_rounding", &PlmrDevice::tile_rounding, 0, 1, false, true},
    {"baseline_scale", &PlmrDevice::baseline_scale, 1e-6, 1e6, false, true},
}};

Constant exact(double value, std::string source) {
  return {value, value, value, std::move(source)};
}

Constant fitted(const wse2_fit::Fitted& f) {
  return {f.value, f.low, f.high, "fitted by tools/fit_plmr.py to tables 3, 4 and 6 of the WaferLLM paper"};
}

// A constant that nobody has measured on the other devices: WSE-2's value, with a range from a tenth of it to three
// times it.
Constant assumed(const Constant& of_wse2) {
  return {of_wse2.value, of_wse2.low / 10, of_wse2.high * 3, "assumed: the value fitted to WSE-2"};
}

PlmrDevice wse2() {
  const std::string paper = "WaferLLM paper, section 7";
  PlmrDevice d;
  d.name = "wse-2";
  d.mesh_width = {750, 750, 757, "vendor's SDK: a fabric of 757 x 996, of which it takes 7 columns and 2 rows"};
  d.mesh_height = {994, 990, 996, "vendor's SDK: a fabric of 757 x 996, of which it takes 7 columns and 2 rows"};
  d.num_cores = exact(850000, paper);
  d.clock_ghz = {1.1, 0.85, 1.1, paper + " (the maximum; the vendor's examples convert at 0.85)"};
  d.alpha_cycles = {1, 1, 1.3, paper + ": a message a cycle to a neighbour"};
  d.beta_cycles = fitted(wse2_fit::kBetaCycles);
  d.ramp_cycles = {2, 1, 5, "assumed: one cycle a ramp"};
  d.link_bytes_per_cycle = exact(4, paper + ": 32-bit messages");
  d.sram_bytes = exact(48.0 * 1024, paper);
  d.sram_read_bytes_per_cycle = {16, 8, 16, "IEEE Micro 43(3): two 64-bit reads a cycle; the paper: two of 32 bits"};
  d.routes = {24, 24, 32, "vendor's SDK: 24 colours; the paper: 5-bit tags"};
  d.free_routes = {21, 21, 24, "vendor's SDK: three are reserved"};
  d.peak_macs_per_cycle = {
      4, 2, 4, "The Next Platform, 2024-03-14: 4-wide fp16; least: the paper's two 32-bit operands a cycle"};
  d.mac_cycles = fitted(wse2_fit::kMacCycles);
  d.call_cycles = fitted(wse2_fit::kCallCycles);
  d.vector_slice_cycles = {0, 0, 6.3, "fitted as zero beside value_cycles, as 6.3 without (docs/notes/wafer.md)"};
  d.value_cycles = fitted(wse2_fit::kValueCycles);
  d.decode_serial_cycles = fitted(wse2_fit::kDecodeSerialCycles);
  d.tile_rounding = {wse2_fit::kTileRounding, 0, 1,
                     "chosen: with 0 table 3 is not met, with 1 fewer cores are faster (docs/notes/wafer.md)"};
  d.baseline_scale = exact(1, "fitted to tables 3 and 4 of the WaferLLM paper and what its text says of four models");
  d.fit_residual = wse2_fit::kResidual;
  d.other_fits.assign(wse2_fit::kOtherFits.begin(), wse2_fit::kOtherFits.end());
  d.power_watts = {15000, 15000, 23000, "37.5 A100s of 400 W, which the paper's energy ratios amount to"};
  return d;
}

PlmrDevice wse3() {
  PlmrDevice d = wse2();
  d.name = "wse-3";
  d.mesh_width = {755, 750, 762, "vendor's SDK: a fabric of 762 x 1172, less 7 columns and 2 rows as on WSE-2"};
  d.mesh_height = {1170, 994, 1172, "vendor's SDK: a fabric of 762 x 1172, less 7 columns and 2 rows as on WSE-2"};
  d.num_cores = exact(900000, "vendor, 2024-03-13");
  d.clock_ghz = {1.1, 0.85, 1.2, "assumed: as WSE-2; The Next Platform, 2024-03-14, guesses 5 % more"};
  d.peak_macs_per_cycle = {8, 4, 8, "The Next Platform, 2024-03-14: 8-wide fp16"};
  for (Constant PlmrDevice::*c : {&PlmrDevice::beta_cycles, &PlmrDevice::mac_cycles, &PlmrDevice::call_cycles,
                                  &PlmrDevice::value_cycles, &PlmrDevice::decode_serial_cycles})
    d.*c = assumed(d.*c);
  d.baseline_scale = PlmrDevice{}.baseline_scale;
  d.other_fits.clear();
  d.fit_residual = 0;
  d.mac_cycles.low = 1.0 / 8;
  return d;
}

// Shared by Tenstorrent's cards and Dojo: routes are dynamic, and no program has been fitted.
PlmrDevice unfitted(std::string name, double peak_macs, double least_macs, std::string source) {
  const PlmrDevice base = wse2();
  PlmrDevice d = base;
  d.name = std::move(name);
  d.beta_cycles = assumed(base.beta_cycles);
  d.call_cycles = assumed(base.call_cycles);
  d.value_cycles = assumed(base.value_cycles);
  d.baseline_scale = PlmrDevice{}.baseline_scale;
  d.other_fits.clear();
  d.fit_residual = 0;
  d.decode_serial_cycles = assumed(base.decode_serial_cycles);
  d.peak_macs_per_cycle = {peak_macs, least_macs, peak_macs, source};
  d.mac_cycles = {1 / least_macs, 1 / peak_macs, 4 / least_macs, "assumed: the slower rate of " + source};
  return d;
}

void set_dynamic_routes(PlmrDevice& d) {
  d.routes = d.free_routes = {65536, 1024, 1e6, "none: routers take a destination, not a colour"};
}

PlmrDevice wormhole() {
  PlmrDevice d = unfitted("wormhole", 2048, 512, "vendor's ISA documents: 2048 at LoFi, 512 at HiFi4");
  d.mesh_width = {8, 8, 8, "tt-metal's Blackhole guide: 8 x 10 Tensix cores, 8 x 8 left to programs on an n150"};
  d.mesh_height = {10, 8, 10, "tt-metal's Blackhole guide: 8 x 10 Tensix cores, 8 x 8 left to programs on an n150"};
  d.num_cores = {80, 64, 80, "tt-metal's Blackhole guide"};
  d.clock_ghz = exact(1.0, "vendor");
  d.alpha_cycles = exact(9, "vendor's ISA documents");
  d.ramp_cycles = {10, 10, 10, "vendor's ISA documents: 5 at each end"};
  d.link_bytes_per_cycle = exact(32, "vendor: each of two NoCs");
  d.sram_bytes = exact(1464.0 * 1024, "vendor's ISA documents");
  d.sram_read_bytes_per_cycle = {256, 128, 256, "vendor's ISA documents: 16 banks of 16 bytes"};
  set_dynamic_routes(d);
  d.power_watts = {160, 75, 300, "assumed: a card's; not found in public documents here"};
  return d;
}

PlmrDevice blackhole() {
  PlmrDevice d = wormhole();
  d.name = "blackhole";
  d.mesh_width = {14, 12, 14,
                  "tt-metal's Blackhole guide: 14 x 10 Tensix cores, 13 x 10 left to programs; cards with 120"};
  d.mesh_height = {10, 10, 10,
                   "tt-metal's Blackhole guide: 14 x 10 Tensix cores, 13 x 10 left to programs; cards with 120"};
  d.num_cores = {140, 120, 140, "tt-metal's Blackhole guide"};
  d.clock_ghz = {1.35, 1.0, 1.35, "tt-system-firmware: asic_fmax 1350 on all boards"};
  d.link_bytes_per_cycle = {64, 32, 64, "vendor's ISA documents: flits of 512 bits, each of two NoCs"};
  d.sram_bytes = {1536.0 * 1024, 1464.0 * 1024, 1536.0 * 1024, "vendor: 1.5 MB; tt-metal's Blackhole guide: 1464 KB"};
  d.power_watts = {300, 150, 300, "assumed: a card's; not found in public documents here"};
  return d;
}

PlmrDevice dojo() {
  PlmrDevice d = unfitted("dojo", 256, 128, "Hot Chips 34: about 256 bf16 multiply-accumulates a cycle");
  d.mesh_width = {90, 90, 95, "Hot Chips 34: 25 dies of 354 cores; taken as a square of 5 x 5 dies of 18 x 19"};
  d.mesh_height = {95, 90, 95, "Hot Chips 34: 25 dies of 354 cores; taken as a square of 5 x 5 dies of 18 x 19"};
  d.num_cores = exact(8850, "Hot Chips 34: a training tile");
  d.clock_ghz = exact(2.0, "Hot Chips 34");
  d.alpha_cycles = {1, 1, 4, "assumed: a hop a cycle within a die"};
  d.link_bytes_per_cycle = {256, 64, 256, "Hot Chips 34: 256 bytes a cycle; least, if all four directions share them"};
  d.sram_bytes = exact(1280.0 * 1024, "Hot Chips 34");
  d.sram_read_bytes_per_cycle = {200, 128, 256, "assumed: 400 GB/s at 2 GHz; not found in public documents here"};
  set_dynamic_routes(d);
  d.power_watts = {15000, 10000, 15000, "vendor, 2021-08: a training tile draws 15 kW"};
  return d;
}

bool is_constant(std::string_view name) {
  return std::any_of(kFields.begin(), kFields.end(), [=](const PlmrField& field) { return field.name == name; });
}

double parse_value(const JsonField& field, const PlmrField& rule) {
  const double value = field.number(rule.min, rule.max);
  if (rule.whole && value != std::floor(value)) field.fail_expected("a whole number");
  return value;
}

Constant parse_constant(const JsonField& field, const PlmrField& rule, std::string_view where) {
  Constant c;
  if (!field.is_object()) return exact(parse_value(field, rule), std::string(where));
  for (const auto& [key, member] : field.members())
    if (key != "value" && key != "low" && key != "high" && key != "source")
      member.fail("unknown; expected value, low, high or source");
  c.value = parse_value(field.at("value"), rule);
  const auto bound = [&](std::string_view key) {
    const auto given = field.find(key);
    return given ? given->number(rule.min, rule.max) : c.value;
  };
  c.low = bound("low");
  c.high = bound("high");
  if (c.low > c.value || c.value > c.high)
    field.fail(fmt::format("expected low <= value <= high, found {}, {}, {}", c.low, c.value, c.high));
  const auto source = field.find("source");
  c.source = source ? source->text() : std::string(where);
  return c;
}

}  // namespace

PlmrDevice without_fitted_costs(PlmrDevice device) {
  for (Constant PlmrDevice::*constant : kFittedConstants) (device.*constant).value = 0;
  device.vector_slice_cycles.value = 0;
  return device;
}

std::span<const PlmrField> plmr_fields() {
  return kFields;
}

std::span<const std::string_view> plmr_preset_names() {
  return kPresetNames;
}

PlmrDevice plmr_preset(std::string_view name) {
  if (name == "wse-2") return wse2();
  if (name == "wse-3") return wse3();
  if (name == "blackhole") return blackhole();
  if (name == "wormhole") return wormhole();
  if (name == "dojo") return dojo();
  throw_error<InputError>("no device \"{}\"; there are {}, or a JSON file", name, fmt::join(kPresetNames, ", "));
}

PlmrDevice parse_plmr_device(std::string_view text, std::string_view where) {
  const nlohmann::json json = parse_json(text, where, 8);
  const JsonField root(json, std::string(where));
  if (!root.is_object()) root.fail_expected("an object");

  PlmrDevice device;
  const auto base = root.find("base");
  if (base) {
    const std::string name = base->text();
    if (std::find(kPresetNames.begin(), kPresetNames.end(), name) == kPresetNames.end())
      base->fail(fmt::format("no preset \"{}\"; there are {}", name, fmt::join(kPresetNames, ", ")));
    device = plmr_preset(name);
  }
  const auto name = root.find("name");
  if (name && !name->text().empty())
    device.name = name->text();
  else
    device.name = base ? fmt::format("{} ({})", device.name, where) : std::string(where);

  for (const auto& [key, member] : root.members())
    if (key != "name" && key != "base" && !is_constant(key)) member.fail("no constant of a device has this name");
  for (const PlmrField& rule : kFields) {
    if (const auto field = root.find(rule.name)) {
      device.*rule.constant = parse_constant(*field, rule, where);
      if (std::ranges::find(kVariedConstants, rule.constant) != kVariedConstants.end()) {
        device.other_fits.clear();
        device.fit_residual = 0;
      }
    } else if (!base && !rule.has_default) {
      root.fail(fmt::format("{} is missing; give it, or a \"base\" whose constants hold", rule.name));
    }
  }
  if (device.free_routes.value > device.routes.value)
    root.fail(fmt::format("free_routes: {} of {} routes", device.free_routes.value, device.routes.value));
  const double mesh = device.mesh_width.value * device.mesh_height.value;
  if (device.num_cores.value < mesh)
    root.fail(fmt::format("num_cores: {:.0f}, fewer than the {:.0f} of its mesh of {:.0f} x {:.0f}",
                          device.num_cores.value, mesh, device.mesh_width.value, device.mesh_height.value));
  return device;
}

PlmrDevice open_plmr_device(const std::string& name_or_file) {
  std::error_code error;
  if (std::find(kPresetNames.begin(), kPresetNames.end(), name_or_file) != kPresetNames.end() ||
      !std::filesystem::exists(name_or_file, error))
    return plmr_preset(name_or_file);
  return parse_plmr_device(read_file(name_or_file, kMaxFileBytes), name_or_file);
}

}  // namespace heddle
