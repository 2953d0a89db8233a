#include "wafer/mesh/timed_mesh.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/error.h"

namespace heddle::mesh {
namespace {

std::int64_t number(Axis axis) {
  return static_cast<std::int64_t>(axis);
}

// Tiles of this size have at most 2^31 values a side.
std::int64_t shape(Tile tile) {
  return (std::int64_t{tile.rows} << 31) + tile.columns;
}

}  // namespace

TimedMesh::TimedMesh(const std::optional<PlmrDevice>& device, const Grid& grid, ThreadPool& pool, WaferSync sync)
    : values_(grid, pool), device_(device), sync_(sync) {
  if (device_) budget_.emplace(*device_, grid);
}

void TimedMesh::phase(std::string_view name) {
  if (timing_ == nullptr && budget_) budget_->phase(name);
}

Tile TimedMesh::allocate(std::string_view name, int rows, int columns, Buffers buffers) {
  std::optional<Tile> counted;
  if (budget_) counted = budget_->allocate(name, rows, columns, buffers);
  const Tile tile = values_.allocate(name, rows, columns, buffers);
  if (counted) counted_[tile.id] = *counted;
  return tile;
}

void TimedMesh::release(Tile tile) {
  values_.release(tile);
  if (const auto found = counted_.find(tile.id); found != counted_.end()) {
    budget_->release(found->second);
    counted_.erase(found);
  }
}

void TimedMesh::hold(std::string_view name, double bytes) {
  if (!budget_) return;
  if (const auto found = held_.find(name); found != held_.end()) {
    budget_->release(found->second);
    held_.erase(found);
  }
  held_.emplace(name, budget_->hold(name, bytes));
}

Tile TimedMesh::allocate_held(int rows, int columns) {
  return values_.allocate("held", rows, columns, Buffers::one);
}

PlmrDevice TimedMesh::without_limits() const {
  PlmrDevice roomy = *device_;
  roomy.free_routes.value = 1e9;
  return roomy;
}

template <class Do>
void TimedMesh::carry_out(std::string_view part, std::initializer_list<std::int64_t> what, Do&& operation) {
  if (timing_ != nullptr) return operation(*timing_);
  operation(values_);
  if (!device_ || mode_ == Mode::later_step) return;
  if (mode_ == Mode::alone) key_ = {0};
  key_.insert(key_.end(), what);
  if (mode_ == Mode::alone) charge(part, [&](MaxPlusMesh& mesh) { operation(mesh); });
}

void TimedMesh::charge(std::string_view part, FunctionRef<void(MaxPlusMesh&)> program) {
  if (!device_) return;
  auto found = known_.find(key_);
  if (found == known_.end()) found = known_.emplace(key_, time(program)).first;
  add_run(part, found->second, timed_);
}

TimedMesh::Cycles TimedMesh::time(FunctionRef<void(MaxPlusMesh&)> program) const {
  const auto on = [&](const PlmrDevice& device) {
    MaxPlusMesh mesh(device, grid(), {.sync = sync_});
    program(mesh);
    return mesh.cycles();
  };
  return {.all = on(without_limits()), .hops_and_words = on(without_fitted_costs(without_limits()))};
}

void TimedMesh::add_run(std::string_view part, const Cycles& cycles, Basis basis) {
  cost_.add_run(account_.empty() ? part : account_, cycles.all, cycles.hops_and_words, basis);
}

void TimedMesh::spend(LocalWork local) {
  if (!device_) return;
  const double tiles = grid().tiles_a_core();
  if (local.macs > 0) add_cycles("products", tiles * local.macs * device_->mac_cycles.value, Basis::analytical);
  if (local.values > 0)
    add_cycles("element-wise work", tiles * local.values * device_->value_cycles.value, Basis::analytical);
}

void TimedMesh::add_cycles(std::string_view part, double cycles, Basis basis) {
  if (device_) cost_.add(account_.empty() ? part : account_, cycles, basis);
}

WaferCost TimedMesh::take_cost() {
  WaferCost cost = std::exchange(cost_, {});
  if (budget_) {
    cost.memory_bytes = budget_->memory_bytes();
    cost.routes = budget_->routes();
  }
  return cost;
}

void TimedMesh::skew(std::initializer_list<TileAxis> tiles) {
  if (budget_)
    for (const TileAxis& t : tiles) budget_->take_shift(t.axis);
  const TileAxis first = *tiles.begin(), last = *(tiles.end() - 1);
  carry_out(
      "alignment",
      {static_cast<std::int64_t>(Op::skew), shape(first.tile), number(first.axis), shape(last.tile), number(last.axis)},
      [&](auto& mesh) { mesh.skew(tiles); });
}

void TimedMesh::shift(Tile tile, Axis axis) {
  if (budget_ && mode_ != Mode::later_step) budget_->take_shift(axis);
  carry_out("shifts", {static_cast<std::int64_t>(Op::shift), shape(tile), number(axis)},
            [&](auto& mesh) { mesh.shift(tile, axis); });
}

void TimedMesh::broadcast(Tile from, Tile into, Axis axis, Root root) {
  if (budget_ && mode_ != Mode::later_step) budget_->take_relay(axis);
  carry_out("broadcasts",
            {static_cast<std::int64_t>(Op::broadcast), shape(from), number(axis), root.place, root.per_line},
            [&](auto& mesh) { mesh.broadcast(from, into, axis, root); });
}

void TimedMesh::reduce(Tile from, Tile into, Axis axis, Root root) {
  if (budget_ && mode_ != Mode::later_step) budget_->take_chain(axis);
  carry_out("sums", {static_cast<std::int64_t>(Op::reduce), shape(from), number(axis), root.place, root.per_line},
            [&](auto& mesh) { mesh.reduce(from, into, axis, root); });
}

void TimedMesh::gather(Tile from, std::span<const Tile> all, Axis axis) {
  if (budget_ && mode_ != Mode::later_step) budget_->take_relay(axis);
  carry_out("gathers", {static_cast<std::int64_t>(Op::gather), shape(from), number(axis)},
            [&](auto& mesh) { mesh.gather(from, all, axis); });
}

void TimedMesh::exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves) {
  if (budget_ && mode_ != Mode::later_step) budget_->take_exchange(axis);
  heddle::require(mode_ == Mode::alone, "an exchange within a loop is not timed");
  values_.exchange(from, into, axis, moves);
  if (!device_) return;
  // Not cached: the key would hold all moves and would hardly ever repeat.
  add_run("all-to-all", time([&](MaxPlusMesh& mesh) { mesh.exchange(from, into, axis, moves); }), Basis::counted);
}

void TimedMesh::pass_to_neighbours(Tile from, Tile into, Axis axis, std::span<const RowMove> moves,
                                   const AllReduceOptions& between) {
  for (const RowMove& move : moves)
    heddle::require(std::abs(move.from_place - move.to_place) == 1, "place {} is no neighbour of {}", move.to_place,
                    move.from_place);
  if (budget_) budget_->take_neighbours(axis, between);
  std::map<std::pair<int, int>, double> bytes;  // by places: of all rows that go from one to the other
  const double row = kValueBytes * from.columns * grid().tiles_along(across(axis));
  for (const RowMove& move : moves) bytes[{move.from_place, move.to_place}] += row;
  const auto core = [&](int place) {
    const int at = grid().ring_core(axis, grid().ring_position(axis, place));
    return axis == Axis::x ? DeviceCore{at, 0} : DeviceCore{0, at};
  };
  std::vector<RelayMessage> messages;
  messages.reserve(bytes.size());
  for (const auto& [places, size] : bytes) messages.push_back({core(places.first), core(places.second), size});
  values_.exchange(from, into, axis, moves);
  relay("transfers between neighbours", messages, [](std::size_t) {});
}

void TimedMesh::relay(std::string_view part, std::span<const RelayMessage> messages,
                      FunctionRef<void(std::size_t)> arrive) {
  heddle::require(mode_ == Mode::alone, "messages within a loop are not timed");
  values_.settle();
  if (!device_) {
    for (std::size_t n = 0; n < messages.size(); ++n) arrive(n);
    return;
  }
  const double all = run_relays(*device_, messages, arrive);
  add_run(part, {all, run_relays(without_fitted_costs(*device_), messages, [](std::size_t) {})}, timed_);
}

void TimedMesh::all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options) {
  if (budget_ && mode_ != Mode::later_step) budget_->take_all_reduce(axis, options);
  carry_out("all-reduce",
            {static_cast<std::int64_t>(Op::all_reduce), shape(tile), number(axis),
             static_cast<std::int64_t>(options.method), options.phases, static_cast<std::int64_t>(options.sync)},
            [&](auto& mesh) { mesh.all_reduce(tile, axis, reduction, options); });
}

void TimedMesh::clear(Tile tile) {
  if (timing_ == nullptr) values_.clear(tile);
}

void TimedMesh::multiply_add(Tile a, Tile b, Tile c, Operand operand) {
  carry_out("products",
            {static_cast<std::int64_t>(Op::multiply), shape(a), shape(b), static_cast<std::int64_t>(operand)},
            [&](auto& mesh) { mesh.multiply_add(a, b, c, operand); });
}

void TimedMesh::multiply_vector(Tile x, Tile b, Tile y) {
  carry_out("products", {static_cast<std::int64_t>(Op::vector), shape(x), shape(b)},
            [&](auto& mesh) { mesh.multiply_vector(x, b, y); });
}

}  // namespace heddle::mesh
