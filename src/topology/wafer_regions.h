// Pipeline regions (WaferLLM, sections 4.4 and 8): meshes of the same size that share a model's layers, because the memory
// of one does not hold them all. A request passes them one after the other, so that all but one stand idle.
#pragma once

#include <vector>

#include "topology/plmr.h"
#include "topology/wafer_cost.h"

namespace heddle {

struct LayerRange {
  int first = 0, last = 0;  // [first, last)
  int count() const { return last - first; }
};

// Of each region: consecutive layers, numbers that differ by one at most. Throws InputError where there are more regions
// than layers.
std::vector<LayerRange> region_layers(int num_layers, int regions);

// Regions lie on the device in rows, as many as are wide enough, which are passed to and fro, so that each is beside the
// next: along x, or along y where a row ends. (Where more are counted than rectangles fit, as table 5's six of 360 x 360 on
// WSE-2, the rest is taken to lie as near.)
bool next_region_is_along_x(const PlmrDevice& device, WaferMesh mesh, int region);

// What a region's end costs, from its last layer to the next region's first, in cycles.
// Decode: `values` of a core, the same in all cores of a row, which need them in all cores of the next region's row.
double decode_hand_over_cycles(const PlmrDevice& device, WaferMesh mesh, int region, double values);
// Prefill: `values` of each core, for the core at its place.
double prefill_hand_over_cycles(const PlmrDevice& device, WaferMesh mesh, int region, double values);

}  // namespace heddle
