// Checks that all cost functions share: a valid mesh, and the memory and routes of a core.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle {

// Throws InputError on a side below 3, or where the mesh does not fit on the device, neither upright nor turned.
inline void check_wafer_mesh(const PlmrDevice& device, WaferMesh mesh) {
  const auto [least, most] = std::minmax(mesh.width, mesh.height);
  const auto [least_side, most_side] = std::minmax(device.mesh_width.value, device.mesh_height.value);
  if (least < 3)
    throw_error<InputError>("a mesh of {} x {} cores; each side needs 3 or more, and {} has {} x {} cores", mesh.width,
                            mesh.height, device.name, device.mesh_width.value, device.mesh_height.value);
  if (least > least_side || most > most_side)
    throw_error<InputError>("a mesh of {} x {} cores does not lie in the {} x {} of {}", mesh.width, mesh.height,
                            device.mesh_width.value, device.mesh_height.value, device.name);
}

// The side of the smallest square mesh on which `memory_on(mesh)` fits a core; 0: no mesh of the device does.
template <class MemoryOn>
int smallest_square(const PlmrDevice& device, const MemoryOn& memory_on) {
  const int most = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  for (int side = 3; side <= most; ++side)
    if (memory_on(WaferMesh{side, side}) <= device.sram_bytes.value) return side;
  return 0;
}

inline std::string smallest_square_text(const PlmrDevice& device, int side) {
  const double most = std::min(device.mesh_width.value, device.mesh_height.value);
  return side > 0 ? fmt::format("the smallest square mesh that would do is {} x {}", side, side)
                  : fmt::format("no square mesh of the device would do, up to {} x {}", most, most);
}

// Ends of an error message, each optional: what would need fewer routes; why memory is so large.
struct BudgetHints {
  std::string fewer_routes{}, much_memory{};
};

template <class MemoryOn>
void check_core_budgets(const PlmrDevice& device, std::string_view phase, WaferMesh mesh, const WaferCost& cost,
                        const MemoryOn& memory_on, const BudgetHints& hints = {}) {
  const auto last_part = [](const std::string& hint) { return hint.empty() ? hint : "; " + hint; };
  const double over = cost.memory_bytes - device.sram_bytes.value;
  if (over > 0)
    throw_error<InputError>(
        "{} on {} x {}: core (0, 0) needs {:.0f} bytes, but a core of {} has {:.0f}, {:.0f} too few; {}{}", phase,
        mesh.width, mesh.height, cost.memory_bytes, device.name, device.sram_bytes.value, over,
        smallest_square_text(device, smallest_square(device, memory_on)), last_part(hints.much_memory));
  if (cost.routes > device.free_routes.value)
    throw_error<InputError>("{} on {} x {}: core ({}, {}) needs {} routes, but a core of {} has {:.0f} free{}", phase,
                            mesh.width, mesh.height, mesh.width / 2, mesh.height / 2, cost.routes, device.name,
                            device.free_routes.value, last_part(hints.fewer_routes));
}

}  // namespace heddle
