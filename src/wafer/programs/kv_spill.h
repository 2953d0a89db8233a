// The keys and values of a prompt on the idle cores below prefill's mesh (WaferFit::spill), layer by layer: row y of cores
// sends its own down the columns to idle row y mod height, relayed by the cores on the way.
#pragma once

#include <vector>

#include "wafer/cost/wafer_regions.h"
#include "wafer/mesh/timed_mesh.h"

namespace heddle {

class KvSpill {
 public:
  KvSpill(const mesh::Grid& grid, CoreRectangle idle);

  // Sends the tiles k and v of a layer, and keeps what arrives. All columns are alike: one of them is timed. Throws
  // InputError where the idle cores of a device are full.
  void send(mesh::TimedMesh& mesh, mesh::Tile k, mesh::Tile v);
  // What arrived last, read from the idle cores: [tokens][columns of a tile][places along x].
  std::vector<float> keys(std::int64_t tokens) const { return read(0, tokens); }
  std::vector<float> values(std::int64_t tokens) const { return read(1, tokens); }

  void begin_region() { held_layers_ = 0; }          // the next region has idle cores of its own
  double core_bytes() const { return most_bytes_; }  // of the fullest idle core

 private:
  // Rows of places that a row of cores has, and their first.
  int places_a_core() const { return grid_.tiles_along(mesh::Axis::y); }
  int first_place(int core_y) const;
  std::size_t offset(int core_y, int place, int which, int r, int c) const;
  std::vector<float> read(int which, std::int64_t tokens) const;

  mesh::Grid grid_;
  CoreRectangle idle_;
  std::vector<int> position_;             // in the ring, by row of cores
  mesh::Tile tile_;                       // the shape of k and of v
  std::vector<std::vector<float>> rows_;  // by idle row: a slot for each row of cores that it serves
  int held_layers_ = 0;
  double most_bytes_ = 0;
};

}  // namespace heddle
