// The PLMR device (WaferLLM, section 3): a mesh of cores with little memory each. A hop costs alpha, a routing stage in
// software beta, and each core has few routes. Plain data: presets, in which each number has a source and a range, and
// files that override them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct Constant {
  double value = 0;
  double low = 0, high = 0;  // low <= value <= high
  std::string source;
};

struct PlmrDevice {
  std::string name;
  Constant mesh_width, mesh_height;  // cores of the largest rectangle that a program may use
  Constant num_cores;                // of the whole device
  Constant clock_ghz;
  Constant alpha_cycles;               // per hop
  Constant beta_cycles;                // per routing stage
  Constant ramp_cycles;                // from a core into its router, plus out of the last router
  Constant link_bytes_per_cycle;       // per direction
  Constant sram_bytes;                 // per core
  Constant sram_read_bytes_per_cycle;  // this and peak_macs_per_cycle are limits only; no cost is computed from them
  Constant routes;                     // that a core can distinguish
  Constant free_routes;                // of those, available to a program
  Constant peak_macs_per_cycle;        // fp16, per core
  Constant mac_cycles;                 // per multiply-accumulate, as programs achieve it
  Constant call_cycles;                // per call in a GEMM's tile step: a slice (inner index) or a transfer
  Constant vector_slice_cycles;        // per slice of a GEMV
  Constant value_cycles;          // per value of a decode layer's element-wise work: norms, rotation, softmax, SwiGLU
  Constant decode_serial_cycles;  // per decode layer, beside all of the above
  Constant power_watts;           // thermal design power; energy is this times the time, not a measurement
  // Size that a prefill tile counts with: 0 is its exact size, as if work were spread evenly; 1 is rounded up, as on
  // the slowest core.
  Constant tile_rounding{1, 1, 1, "rounded up"};
  // Factor on the baselines' own fitted constants (wafer_baselines.h), relative to WSE-2. It applies beside what
  // follows from hops and links.
  Constant baseline_scale{1, 0.1, 3, "assumed: as fitted to WSE-2"};

  // The constants that were fitted together, as each alternative fit (one cell or model left out, or another tile
  // rounding) has them, in the order of kVariedConstants. They vary together, so the range of a cost is its range over
  // these fits. Empty for devices without a fit.
  std::vector<std::array<double, 6>> other_fits;
  double fit_residual = 0;  // standard error of the fitted time of a cell, relative

  double seconds(double cycles) const { return cycles / (clock_ghz.value * 1e9); }
  double joules(double cycles) const { return seconds(cycles) * power_watts.value; }
};

inline constexpr std::array<Constant PlmrDevice::*, 5> kFittedConstants{
    &PlmrDevice::mac_cycles, &PlmrDevice::call_cycles, &PlmrDevice::value_cycles, &PlmrDevice::beta_cycles,
    &PlmrDevice::decode_serial_cycles};
inline constexpr std::array<Constant PlmrDevice::*, 6> kVariedConstants{
    &PlmrDevice::mac_cycles,  &PlmrDevice::call_cycles,          &PlmrDevice::value_cycles,
    &PlmrDevice::beta_cycles, &PlmrDevice::decode_serial_cycles, &PlmrDevice::tile_rounding};

// The device if operations, calls, stages and values cost nothing. What then takes time is hops, ramps and words, which
// were not fitted.
PlmrDevice without_fitted_costs(PlmrDevice device);

// The constants of a device, with their names in files and their valid ranges.
struct PlmrField {
  std::string_view name;
  Constant PlmrDevice::*constant;
  double min, max;
  bool whole;
  bool has_default = false;  // may be missing in a file without a base
};
std::span<const PlmrField> plmr_fields();

// "wse-2", "wse-3", "blackhole", "wormhole", "dojo".
std::span<const std::string_view> plmr_preset_names();

// Throws InputError that lists the presets when `name` is none.
PlmrDevice plmr_preset(std::string_view name);

// Parses a device from JSON; `where` begins every message. The JSON is an object. "base" names a preset that supplies
// missing constants; without it, all must be given except tile_rounding and baseline_scale. "name" is any text. Each
// constant is a number or {"value", "low", "high", "source"}, of which the last three are optional. Throws InputError
// that names the field and the reason: unknown or missing, not a number, out of range, not low <= value <= high, more
// free routes than routes. A file that sets one of kVariedConstants clears other_fits.
PlmrDevice parse_plmr_device(std::string_view text, std::string_view where);

// Opens a preset by name, or a file of at most 1 MiB. Throws as both do.
PlmrDevice open_plmr_device(const std::string& name_or_file);

}  // namespace heddle
