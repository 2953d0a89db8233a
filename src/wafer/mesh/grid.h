// Maps a program's places to the cores of a mesh. A program sees columns x rows places, in lines along x and along y;
// each line is a ring. A core holds tiles_along(x) * tiles_along(y) neighbouring places.
#pragma once

#include <cstdint>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "schedule/two_hop.h"
#include "wafer/cost/wafer_cost.h"

namespace heddle::mesh {

enum class Axis : std::uint8_t { x, y };

constexpr Axis across(Axis axis) {
  return axis == Axis::x ? Axis::y : Axis::x;
}

// The order in which the ring visits the cores of a line. interleaved: INTERLEAVE, neighbours are at most two hops
// apart; natural: line order, closed by one path of N - 1 hops.
enum class LineOrder : std::uint8_t { interleaved, natural };

struct Grid {
  WaferMesh cores;
  int columns = 0, rows = 0;  // places
  LineOrder order = LineOrder::interleaved;

  // P x P places, where P is the least common multiple of the sides (5.4), as GEMMs need. Throws InputError on a side
  // below 3 and where P does not fit an int.
  static Grid square(WaferMesh cores, LineOrder order) {
    if (cores.width < 3 || cores.height < 3)
      throw_error<InputError>("a mesh of {} x {} cores; each side needs 3 or more", cores.width, cores.height);
    const std::int64_t multiple = std::lcm(std::int64_t{cores.width}, std::int64_t{cores.height});
    if (multiple > std::numeric_limits<int>::max())
      throw_error<InputError>("a mesh of {} x {} cores: the least common multiple of its sides is {}", cores.width,
                              cores.height, multiple);
    const int side = static_cast<int>(multiple);
    return {.cores = cores, .columns = side, .rows = side, .order = order};
  }
  // One place per core, as GEMVs need.
  static Grid of_cores(WaferMesh cores, LineOrder order = LineOrder::natural) {
    return {.cores = cores, .columns = cores.width, .rows = cores.height, .order = order};
  }

  int places(Axis axis) const { return axis == Axis::x ? columns : rows; }
  int cores_along(Axis axis) const { return axis == Axis::x ? cores.width : cores.height; }
  int tiles_along(Axis axis) const { return places(axis) / cores_along(axis); }
  int tiles_a_core() const { return tiles_along(Axis::x) * tiles_along(Axis::y); }

  // Consecutive places of the ring share a core, tiles_along(axis) on each. ring_core: index in the line of the core
  // that is `position`-th in the ring.
  int ring_position(Axis axis, int place) const { return place / tiles_along(axis); }
  int ring_core(Axis axis, int position) const {
    return order == LineOrder::natural ? position : schedule::TwoHop{cores_along(axis)}.core_at(position);
  }
  // Hops of a shift, from the core at `position` + 1 to the one at `position`.
  int hops(Axis axis, int position) const {
    const int next = position + 1 == cores_along(axis) ? 0 : position + 1;
    return schedule::distance(ring_core(axis, position), ring_core(axis, next));
  }
};

}  // namespace heddle::mesh
