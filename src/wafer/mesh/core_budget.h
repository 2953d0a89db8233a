// What a core has and a program takes of it: memory by tiles, routes by what moves. All cores run the same program, so
// the account is kept once, of the busiest core. Throws InputError that names core, phase, need and budget.
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
  // Bytes of a core that are no tile of a mesh. The handle has an id alone.
  Tile hold(std::string_view name, double bytes);
  void release(Tile tile);

  // Each takes its routes once an axis, however often it is called; all all-reduces share one that launches them.
  void take_shift(Axis axis);
  void take_relay(Axis axis);
  void take_chain(Axis axis);
  void take_exchange(Axis axis);
  void take_all_reduce(Axis axis, const AllReduceOptions& options);

  double memory_bytes() const { return most_bytes_; }  // at its fullest
  int routes() const { return routes_; }

 private:
  void take(std::string_view what, int count, std::string_view cure = {});  // cure: ends the message

  std::string device_name_;
  double sram_bytes_, free_routes_;
  Grid grid_;
  std::string phase_ = "start";
  std::vector<double> tile_bytes_;
  double bytes_ = 0, most_bytes_ = 0;
  std::map<std::string, int, std::less<>> taken_;
  int routes_ = 0;
};

// Of what goes from neighbour to neighbour: one in, one out; software turns them where the way turns.
inline constexpr int kRelayRoutes = 2;
// Routes that a line of `cores` needs, as its schedule's paths are: colours such that no two paths that begin, end or
// pass at a core have the same. For paths along a line these are as many as meet in the busiest core.
int shift_routes(int cores, LineOrder order);
// Of an all-reduce: each member of a phase receives by one colour and sends by another, and all run the same program: a
// colour for each direction, alternating between neighbours, in each phase that the schedule has; and the multicast's
// two.
int all_reduce_routes(int cores, const AllReduceOptions& options);

}  // namespace heddle::mesh
