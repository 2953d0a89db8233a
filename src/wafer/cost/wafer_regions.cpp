#include "wafer/cost/wafer_regions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "wafer/cost/wafer_budgets.h"

namespace heddle {

std::vector<LayerRange> region_layers(int num_layers, int regions) {
  require(num_layers > 0 && regions > 0, "{} layers in {} regions", num_layers, regions);
  if (regions > num_layers) throw_error<InputError>("{} regions share {} layers", regions, num_layers);
  std::vector<LayerRange> ranges;
  for (int region = 0, first = 0; region < regions; ++region) {
    const int count = num_layers / regions + (region < num_layers % regions ? 1 : 0);
    ranges.push_back({first, first + count});
    first += count;
  }
  return ranges;
}

RegionRoom region_room(const PlmrDevice& device, WaferMesh mesh) {
  check_wafer_mesh(device, mesh);
  const auto width = static_cast<int>(device.mesh_width.value), height = static_cast<int>(device.mesh_height.value);
  const int upright = (width / mesh.width) * (height / mesh.height),
            turned = (width / mesh.height) * (height / mesh.width);
  RegionRoom room{.side_by_side = std::max(upright, turned)};
  room.by_cores =
      std::max(room.side_by_side, static_cast<int>(device.num_cores.value / (1.0 * mesh.width * mesh.height)));
  return room;
}

std::optional<WaferMesh> evener_mesh(WaferMesh mesh) {
  const auto [least, most] = std::minmax(mesh.width, mesh.height);
  if (std::lcm(std::int64_t{least}, std::int64_t{most}) <= 2 * std::int64_t{most}) return std::nullopt;
  const int times = most / least * least;  // the longer side, as a multiple of the shorter one
  return mesh.width < mesh.height ? WaferMesh{least, times} : WaferMesh{times, least};
}

std::string gemm_steps_text(WaferMesh mesh) {
  return fmt::format("GEMMs on {} x {} take {} steps, the least common multiple of the sides", mesh.width, mesh.height,
                     std::lcm(std::int64_t{mesh.width}, std::int64_t{mesh.height}));
}

CoreRectangle region_cores(const PlmrDevice& device, WaferMesh mesh, int regions, int region) {
  const auto width = static_cast<int>(device.mesh_width.value), height = static_cast<int>(device.mesh_height.value);
  const bool turned = (width / mesh.width) * (height / mesh.height) < regions;
  const int wide = turned ? mesh.height : mesh.width, high = turned ? mesh.width : mesh.height;
  const int in_row = std::max(1, width / wide), row = region / in_row;
  const int column = row % 2 == 0 ? region % in_row : in_row - 1 - region % in_row;
  return {.x = column * wide, .y = row * high, .width = mesh.width, .height = mesh.height, .turned = turned};
}

std::optional<CoreRectangle> idle_cores_below(const PlmrDevice& device, WaferMesh mesh, int regions) {
  const auto width = static_cast<int>(device.mesh_width.value), height = static_cast<int>(device.mesh_height.value);
  if (regions * mesh.width > width || mesh.height >= height) return std::nullopt;
  return CoreRectangle{.y = mesh.height, .width = mesh.width, .height = height - mesh.height};
}

double spill_cycles(const PlmrDevice& device, WaferMesh mesh, double values) {
  const double words = std::ceil(values * kValueBytes / device.link_bytes_per_cycle.value);
  const double hop = device.alpha_cycles.value + device.beta_cycles.value;
  // The first rows go as far as the mesh is high; none goes farther.
  return std::max(mesh.height * words + hop, mesh.height * hop + words) + device.ramp_cycles.value;
}

}  // namespace heddle
