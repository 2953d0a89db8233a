#include "wafer/programs/hand_over.h"

namespace heddle {

HandOver::HandOver(const std::optional<PlmrDevice>& device, WaferMesh mesh, int regions, int region) : cores(mesh) {
  const auto place = [&](int r) {
    return device ? region_cores(*device, mesh, regions, r)
                  : CoreRectangle{.x = r * mesh.width, .width = mesh.width, .height = mesh.height};
  };
  from = place(region);
  to = place(region + 1);
  const bool along_device_x = from.x != to.x;
  axis = along_device_x == from.turned ? mesh::Axis::y : mesh::Axis::x;
  forwards = along_device_x ? to.x > from.x : to.y > from.y;
}

int HandOver::column_from(int row) const {
  if (axis == mesh::Axis::y) return row % cores.width;
  return forwards ? cores.width - 1 : 0;
}

int HandOver::column_to(int row) const {
  if (axis == mesh::Axis::y) return row % cores.width;
  return forwards ? 0 : cores.width - 1;
}

}  // namespace heddle
