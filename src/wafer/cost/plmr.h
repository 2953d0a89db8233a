// The PLMR device (WaferLLM, section 3): a mesh of cores with little memory each, on which a hop costs alpha, a routing
// stage in software beta, and each core knows few routes. Plain data: presets, each number with its source and the
// range in which it may lie, and files that override them.
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
  Constant alpha_cycles;               // a hop
  Constant beta_cycles;                // a routing stage
  Constant ramp_cycles;                // from a core into its router and out of the last one
  Constant link_bytes_per_cycle;       // one direction
  Constant sram_bytes;                 // a core
  Constant sram_read_bytes_per_cycle;  // this and peak_macs_per_cycle bound a program; no cost is computed from them
  Constant routes;                     // that a core can tell apart
  Constant free_routes;                // of those, left to a program
  Constant peak_macs_per_cycle;        // fp16, a core
  Constant mac_cycles;                 // a multiply-accumulate as programs reach it
  Constant call_cycles;           // a call in a GEMM's tile step: a slice (index of the inner dimension), a transfer
  Constant vector_slice_cycles;   // a slice of a GEMV
  Constant value_cycles;          // a value of a decode layer's element-wise work: norms, rotation, softmax, SwiGLU
  Constant decode_serial_cycles;  // of a decode layer, beside all that
  Constant power_watts;           // thermal design power: an energy is this times the time, no measurement
  // What a prefill's tiles count as: 0 their exact sizes, as if work were dealt out evenly; 1 rounded up, as in the
  // slowest core.
  Constant tile_rounding{1, 1, 1, "rounded up"};
  // The baselines' own cycles (wafer_baselines.h) as times of what was fitted to WSE-2, beside what follows from hops
  // and links.
  Constant baseline_scale{1, 0.1, 3, "assumed: as fitted to WSE-2"};

  // The constants that were fitted together, as every fit that leaves something out, or takes tiles otherwise, has
  // them, in the order of kVariedConstants: they move together, so a range of a cost is that over these. Empty where
  // nobody fitted.
  std::vector<std::array<double, 6>> other_fits;
  double fit_residual = 0;         // standard error of a cell's time by the fit, as a part of it
  double end_to_end_residual = 0;  // root mean square of the errors of what was measured end to end, and not fitted

  double seconds(double cycles) const { return cycles / (clock_ghz.value * 1e9); }
  double joules(double cycles) const { return seconds(cycles) * power_watts.value; }
};

inline constexpr std::array<Constant PlmrDevice::*, 5> kFittedConstants{
    &PlmrDevice::mac_cycles, &PlmrDevice::call_cycles, &PlmrDevice::value_cycles, &PlmrDevice::beta_cycles,
    &PlmrDevice::decode_serial_cycles};
inline constexpr std::array<Constant PlmrDevice::*, 6> kVariedConstants{
    &PlmrDevice::mac_cycles,  &PlmrDevice::call_cycles,          &PlmrDevice::value_cycles,
    &PlmrDevice::beta_cycles, &PlmrDevice::decode_serial_cycles, &PlmrDevice::tile_rounding};

// The constants of a device by the names that files give them, and the values that make sense.
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

// A device from JSON; `where` begins every message. An object: "base" names a preset whose constants hold where the
// file gives none (without it, all must be given), "name" is free, and each constant is a number or
// {"value", "low", "high", "source"}, of which the last three may be missing; tile_rounding and baseline_scale need not
// be given. Throws InputError that names the field
// and the reason: unknown or missing, not a number, out of range, not low <= value <= high, more free routes than
// routes. A file that sets one of kVariedConstants leaves no other fits.
PlmrDevice parse_plmr_device(std::string_view text, std::string_view where);

// A preset's name or a file of at most 1 MiB. Throws as both do.
PlmrDevice open_plmr_device(const std::string& name_or_file);

}  // namespace heddle
