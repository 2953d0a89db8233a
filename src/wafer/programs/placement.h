// Moves loaded weights to the tiles of a mesh.
#pragma once

#include "base/weight.h"
#include "wafer/mesh/timed_mesh.h"
#include "wafer/programs/partition.h"

namespace heddle {

// Rows and columns of y = x W^T in a tile [in.tile, out.tile]: `in` is split along in_axis, `out` along the other axis.
// Output o of the partition is row first_row + o of the weight.
struct WeightPlacement {
  const Partition& in;
  const Partition& out;
  mesh::Axis in_axis = mesh::Axis::y;
  std::int64_t first_row = 0;
};

// A new tile with W^T; padding is zero.
mesh::Tile place_weight(mesh::TimedMesh& mesh, const Weight& weight, const WeightPlacement& placement);

// A new tile [1, partition.tile] that holds a vector along `axis`, the same on all lines.
mesh::Tile place_vector(mesh::TimedMesh& mesh, const float* vector, const Partition& partition, mesh::Axis axis);

// The same, into an existing tile.
void load_vector(mesh::TimedMesh& mesh, mesh::Tile tile, const float* vector, const Partition& partition,
                 mesh::Axis axis);

// A row of a weight as float32.
std::vector<float> weight_row(const Weight& weight, std::int64_t row);

}  // namespace heddle
