// The memory and routes of a core, and what a program uses of them: tiles use memory, transfers use routes. All cores
// run the same program, so one account is kept, for the busiest core. Throws InputError that names core, phase, need
// and budget.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

class CoreBudget {
 public:
  // Throws InputError on a mesh with a side below 3 or larger than the device.
  CoreBudget(const PlmrDevice& device, const Grid& grid);

  void phase(std::string_view name) { phase_ = name; }
  const std::string& phase() const { return phase_; }

  // A tile at every place. Throws InvalidArgument unless rows and columns are positive.
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers);
  // Bytes of a core that are not a tile. Only the id of the handle is set.
  Tile hold(std::string_view name, double bytes);
  void release(Tile tile);

  // Each takes its routes once per axis, however often it is called. All all-reduces share the route that starts them.
  void take_shift(Axis axis);
  void take_relay(Axis axis);
  void take_chain(Axis axis);
  void take_exchange(Axis axis);
  void take_all_reduce(Axis axis, const AllReduceOptions& options);
  // A transfer from every core of a line to a neighbour, between the all-reduces of a program. It takes the routes of
  // those, and neighbour_routes() more.
  void take_neighbours(Axis axis, const AllReduceOptions& between);

  double memory_bytes() const { return most_bytes_; }  // the peak
  int routes() const { return routes_; }

 private:
  // The largest K up to `most` with which the sums along `axis`, and those that were taken, fit beside all else; 0: none.
  int largest_phases(Axis axis, int most) const;
  void take(std::string_view what, int count, std::string_view cure = {});  // cure: the end of the error message

  std::string device_name_;
  double sram_bytes_, free_routes_;
  Grid grid_;
  std::string phase_ = "start";
  std::vector<double> tile_bytes_;
  double bytes_ = 0, most_bytes_ = 0;
  std::map<std::string, int, std::less<>> taken_;
  std::map<Axis, int> tree_phases_;  // K of the K-trees that were taken
  int routes_ = 0;
};

// Routes of a relay between neighbours: one in, one out. Software switches them where the path turns.
inline constexpr int kRelayRoutes = 2;
// Routes that the paths of a line's schedule need: colours such that no two paths that begin, end or pass at a core
// share one. For paths along a line this is the number of paths at the busiest core.
int shift_routes(int cores, LineOrder order);
// Routes of an all-reduce. A member of a phase receives on one colour and sends on another, and all cores run the same
// program. So each phase needs a colour per direction, alternating between neighbours; the multicast needs two more.
int all_reduce_routes(int cores, const AllReduceOptions& options);
// Routes that transfers between all neighbours of a line, in both directions, need beside those of the all-reduce: one
// for each direction and parity of the sender, less those that a K-tree's first phase has. There, too, a colour belongs
// to a direction and a parity, so every core has the same role in it, sender or receiver, for the tree and for such a
// transfer (tests/wafer/mesh/budget_test.cpp proves it). None is missing where the tree's groups have five cores or more.
int neighbour_routes(int cores, const AllReduceOptions& options);

}  // namespace heddle::mesh
