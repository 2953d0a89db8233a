// Pipeline regions (WaferLLM, sections 4.4 and 8): meshes of the same size that share a model's layers because the
// memory of one does not hold them all. A request passes through them one after the other, so only one region works at
// a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle {

struct LayerRange {
  int first = 0, last = 0;  // [first, last)
  int count() const { return last - first; }
};

// Splits the layers into consecutive ranges, one per region, whose sizes differ by at most one. Throws InputError where
// there are more regions than layers.
std::vector<LayerRange> region_layers(int num_layers, int regions);

// How many meshes of this size a device has. side_by_side: as rectangles of the device, all upright or all turned:
// floor(W/w) floor(H/h). by_cores: floor(cores / (w h)), of any shape, which is more than a program can place; the
// paper counts so (docs/notes/wafer.md). Throws InputError as check_wafer_mesh.
struct RegionRoom {
  int side_by_side = 0, by_cores = 0;
};
RegionRoom region_room(const PlmrDevice& device, WaferMesh mesh);

// Where GEMMs on a mesh take more than twice as many steps as its longer side has cores: the largest mesh within it
// whose one side is a multiple of the other.
std::optional<WaferMesh> evener_mesh(WaferMesh mesh);
// "GEMMs on 719 x 720 take 517680 steps, the least common multiple of the sides".
std::string gemm_steps_text(WaferMesh mesh);

struct DeviceCore {
  int x = 0, y = 0;
};

// Cores of a device: of a mesh of width x height, whose core (0, 0) is the device's (x, y). turned: the mesh's rows lie
// along the device's y.
struct CoreRectangle {
  int x = 0, y = 0, width = 0, height = 0;
  bool turned = false;

  // The mesh's core (mesh_x, mesh_y) on the device.
  DeviceCore on_device(int mesh_x, int mesh_y) const {
    return turned ? DeviceCore{x + mesh_y, y + mesh_x} : DeviceCore{x + mesh_x, y + mesh_y};
  }
  // Of idle cores below a mesh: the row that row `core_y` of the mesh's cores hands its keys and values to.
  int idle_row(int core_y) const { return y + core_y % height; }
};

// Where region `region` of `regions` lies. Regions lie in rows, as many as fit side by side, which run alternately forwards
// and backwards, so that each region is beside the next one: along x, or along y at the end of a row. Upright, unless only
// turned ones are as many.
CoreRectangle region_cores(const PlmrDevice& device, WaferMesh mesh, int regions, int region);

// The cores below region 0, as wide as it, that no region uses; each other region has as many below it. None where
// regions fill more than one row, or a column of the device.
std::optional<CoreRectangle> idle_cores_below(const PlmrDevice& device, WaferMesh mesh, int regions);

// Cycles of a spill: `values` of each core go down its column to the idle cores below, from row y to the one that is
// y mod idle.height-th there, relayed by the cores on the way. All of a column pass its last link, a word a cycle, one
// message behind the other; few words take as long as the longest way. KvSpill executes it.
double spill_cycles(const PlmrDevice& device, WaferMesh mesh, double values);

}  // namespace heddle
