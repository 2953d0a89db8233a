// The way from a region of the wafer to the next (wafer/cost/wafer_regions.h): which core sends to which.
#pragma once

#include <optional>

#include "wafer/cost/wafer_regions.h"
#include "wafer/mesh/grid.h"
#include "wafer/mesh/relay_mesh.h"

namespace heddle {

struct HandOver {
  CoreRectangle from, to;
  mesh::Axis axis = mesh::Axis::x;  // of the regions' meshes, along which the next one lies
  bool forwards = true;             // towards higher coordinates
  WaferMesh cores;                  // of either region

  // Without a device, regions lie side by side.
  HandOver(const std::optional<PlmrDevice>& device, WaferMesh cores, int regions, int region);

  // In decode, all cores of a row have its part of the hidden state, and one of the next region's row needs it. Along x:
  // from the last column to the first one behind the border. Along y: of each row another column, so that rows share
  // columns evenly.
  int column_from(int row) const;
  int column_to(int row) const;

  mesh::RelayMessage message(int from_x, int from_y, int to_x, int to_y, double values) const {
    return {from.on_device(from_x, from_y), to.on_device(to_x, to_y), kValueBytes * values};
  }
};

}  // namespace heddle
