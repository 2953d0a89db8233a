#include "wafer/mesh/core_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/make_schedule.h"
#include "schedule/two_hop.h"

namespace heddle::mesh {
namespace {

constexpr int kLaunchRoutes = 1;  // for the signal that starts an all-reduce everywhere

std::string_view axis_name(Axis axis) {
  return axis == Axis::x ? "x" : "y";
}

// Colours of the first phases of a K-tree among `cores`: one per phase, direction, and parity of the sender's index in
// its phase.
int phase_routes(const schedule::KTree& tree, int phases) {
  std::set<std::tuple<int, bool, bool>> colours;
  for (int phase = 0; phase < phases; ++phase)
    for (int member = 0; member < tree.members(phase); ++member) {
      const int root = tree.root_member(phase, member / tree.fan);
      if (member != root) colours.emplace(phase, member < root, member % 2 == 0);
    }
  return static_cast<int>(colours.size());
}

// Those of all phases, and of the multicast in each direction.
int k_tree_routes(int cores, int phases) {
  const auto tree = make_schedule<schedule::KTree>(cores, phases);
  const bool inwards = cores > 1 && tree.root() > 0, outwards = cores > 1 && tree.root() + 1 < cores;
  return phase_routes(tree, phases) + int{inwards} + int{outwards};
}

}  // namespace

CoreBudget::CoreBudget(const PlmrDevice& device, const Grid& grid)
    : device_name_(device.name),
      sram_bytes_(device.sram_bytes.value),
      free_routes_(device.free_routes.value),
      grid_(grid) {
  const auto [width, height] = grid.cores;
  if (width < 3 || height < 3)
    throw_error<InputError>("a mesh of {} x {} cores; each side needs 3 or more", width, height);
  const auto [least, most] = std::minmax(device.mesh_width.value, device.mesh_height.value);
  if (std::min(width, height) > least || std::max(width, height) > most)
    throw_error<InputError>("a mesh of {} x {} cores does not lie in the {} x {} of {}", width, height,
                            device.mesh_width.value, device.mesh_height.value, device.name);
}

Tile CoreBudget::allocate(std::string_view name, int rows, int columns, Buffers buffers) {
  require(rows > 0 && columns > 0, "tile {} of {} x {}", name, rows, columns);
  Tile tile = hold(name, kValueBytes * rows * columns * static_cast<int>(buffers) * grid_.tiles_a_core());
  tile.rows = rows;
  tile.columns = columns;
  return tile;
}

Tile CoreBudget::hold(std::string_view name, double bytes) {
  if (bytes_ + bytes > sram_bytes_)
    throw_error<InputError>(
        "core (0, 0), {}: {} needs {:.0f} bytes beside {:.0f} in use, but a core of {} has {:.0f}: {:.0f} too few, as "
        "all "
        "cores of {} x {} do",
        phase_, name, bytes, bytes_, device_name_, sram_bytes_, bytes_ + bytes - sram_bytes_, grid_.cores.width,
        grid_.cores.height);
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  tile_bytes_.push_back(bytes);
  return {.id = static_cast<int>(tile_bytes_.size()) - 1};
}

void CoreBudget::release(Tile tile) {
  double& bytes = tile_bytes_.at(static_cast<std::size_t>(tile.id));
  bytes_ -= bytes;
  bytes = 0;
}

void CoreBudget::take_shift(Axis axis) {
  take(fmt::format("shift along {}", axis_name(axis)), shift_routes(grid_.cores_along(axis), grid_.order));
}

void CoreBudget::take_relay(Axis axis) {
  take(fmt::format("relay along {}", axis_name(axis)), kRelayRoutes);
}

void CoreBudget::take_chain(Axis axis) {
  take(fmt::format("chain along {}", axis_name(axis)), kRelayRoutes);
}

void CoreBudget::take_exchange(Axis axis) {
  take(fmt::format("exchange along {}", axis_name(axis)), 2 * kRelayRoutes);
}

void CoreBudget::take_all_reduce(Axis axis, const AllReduceOptions& options) {
  take("launch", kLaunchRoutes);
  const int cores = grid_.cores_along(axis);
  std::string name{"pipeline all-reduce"}, cure;
  if (options.method == WaferAllReduce::ring) name = "ring all-reduce";
  if (options.method == WaferAllReduce::k_tree) {
    name = fmt::format("K-tree of K = {}", options.phases);
    const int most = largest_phases(axis, options.phases);
    cure = most > 0 ? fmt::format("; K = {} is the largest that does", most) : "; no K does";
  }
  take(fmt::format("{} along {}", name, axis_name(axis)), all_reduce_routes(cores, options), cure);
  if (options.method == WaferAllReduce::k_tree) tree_phases_[axis] = options.phases;
}

// The trees of both axes change together: a program has one K.
int CoreBudget::largest_phases(Axis axis, int most) const {
  double others = routes_;
  for (const auto& [other, phases] : tree_phases_)
    others -= all_reduce_routes(grid_.cores_along(other), {.phases = phases});
  const auto need = [&](int phases) {
    int routes = all_reduce_routes(grid_.cores_along(axis), {.phases = phases});
    for (const auto& [other, is] : tree_phases_)
      if (other != axis) routes += all_reduce_routes(grid_.cores_along(other), {.phases = phases});
    return routes;
  };
  while (most > 0 && others + need(most) > free_routes_) --most;
  return most;
}

void CoreBudget::take_neighbours(Axis axis, const AllReduceOptions& between) {
  take_all_reduce(axis, between);
  if (const int more = neighbour_routes(grid_.cores_along(axis), between); more > 0)
    take(fmt::format("transfers between neighbours along {}", axis_name(axis)), more);
}

void CoreBudget::take(std::string_view what, int count, std::string_view cure) {
  const auto [entry, is_new] = taken_.try_emplace(std::string(what), count);
  if (!is_new) return;
  if (routes_ + count > free_routes_)
    throw_error<InputError>(
        "core ({}, {}) of {} x {}, {}: {} needs {} routes beside {} in use, but a core of {} has {:.0f} free{}",
        grid_.cores.width / 2, grid_.cores.height / 2, grid_.cores.width, grid_.cores.height, phase_, entry->first,
        count, routes_, device_name_, free_routes_, cure);
  routes_ += count;
}

int shift_routes(int cores, LineOrder order) {
  const Grid line{.cores = {cores, cores}, .columns = cores, .rows = cores, .order = order};
  // At a core, how many more paths touch it than touch the previous core.
  std::vector<int> change(static_cast<std::size_t>(cores) + 1);
  for (int position = 0; position < cores; ++position) {
    const int a = line.ring_core(Axis::x, position), b = line.ring_core(Axis::x, (position + 1) % cores);
    ++change[static_cast<std::size_t>(std::min(a, b))];
    --change[static_cast<std::size_t>(std::max(a, b)) + 1];
  }
  int paths = 0, most = 0;
  for (const int more : change) most = std::max(most, paths += more);
  return most;
}

int all_reduce_routes(int cores, const AllReduceOptions& options) {
  switch (options.method) {
    case WaferAllReduce::k_tree:
      require(options.phases >= 1, "a K-tree of {} phases", options.phases);
      return k_tree_routes(cores, options.phases);
    case WaferAllReduce::pipeline:  // a chain to the root, then a relay back
      return 2 * kRelayRoutes;
    case WaferAllReduce::ring:
      return shift_routes(cores, LineOrder::interleaved);
  }
  throw_error<InvalidArgument>("no such all-reduce");
}

int neighbour_routes(int cores, const AllReduceOptions& options) {
  constexpr int kDirectionsAndParities = 4;
  if (options.method != WaferAllReduce::k_tree) return kDirectionsAndParities;
  return kDirectionsAndParities - phase_routes(make_schedule<schedule::KTree>(cores, options.phases), 1);
}

}  // namespace heddle::mesh
