// A mesh that computes values (value_mesh.h). With a device, it also measures time and enforces a core's budgets. It
// has the operations of mesh.h, and local work.
//
// Its cycles are those of the executed operations. A MaxPlusMesh times each loop (`repeat`), and each transfer or
// multiplication outside of one. All cores begin it at once, and the next one begins when the last core is done: cores
// wait for each other between loops, and within a loop as the synchronisation says. Times are cached. Each loop is timed
// twice: as it is, and where operations, calls and stages cost nothing. The latter is "simulated", and what their fitted
// costs add is "analytical" (WaferCost::add_run). Local work is no loop: its multiply-accumulates and values are multiplied
// by the device's cost of one, and its basis is "analytical".
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/max_plus_mesh.h"
#include "wafer/mesh/relay_mesh.h"
#include "wafer/mesh/value_mesh.h"

namespace heddle::mesh {

// Work of a core beside GEMMs: its own multiply-accumulates, and values that element-wise work produces.
struct LocalWork {
  double macs = 0, values = 0;
};

class TimedMesh {
 public:
  // Without a device it only computes values: no cycles, no limits. `pool` must outlive it. `sync`: of the steps of a
  // loop. Throws InputError where the mesh does not fit on the device.
  TimedMesh(const std::optional<PlmrDevice>& device, const Grid& grid, ThreadPool& pool,
            WaferSync sync = WaferSync::dataflow);

  const Grid& grid() const { return values_.grid(); }
  ThreadPool& pool() { return values_.pool(); }
  float* at(Tile tile, int i, int r, int c) { return values_.at(tile, i, r, c); }
  std::int64_t row_step(Tile tile) { return values_.row_step(tile); }
  void settle() { values_.settle(); }

  void phase(std::string_view name);
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers);
  void release(Tile tile);
  // A skew of a tile that was loaded in skewed order: takes no time.
  void place_skewed(Tile tile, Axis axis) { values_.skew({{tile, axis}}); }
  // Bytes of a core that are not a tile. Replaces the bytes held under that name before.
  void hold(std::string_view name, double bytes);
  // A tile in memory that hold() counts.
  Tile allocate_held(int rows, int columns);

  // Calls body(0) ... body(count - 1) to compute; calls the body again where it is timed.
  template <class Body>
  void repeat(int count, Body&& body) {
    key_ = {count};
    for (int step = 0; step < count; ++step) {
      mode_ = step == 0 ? Mode::first_step : Mode::later_step;
      body(step);
    }
    mode_ = Mode::alone;
    charge("products", [&](MaxPlusMesh& mesh) {
      timing_ = &mesh;
      mesh.repeat(count, body);
      timing_ = nullptr;
    });
  }

  void skew(std::initializer_list<TileAxis> tiles);
  void shift(Tile tile, Axis axis);
  void broadcast(Tile from, Tile into, Axis axis, Root root);
  void reduce(Tile from, Tile into, Axis axis, Root root);
  void gather(Tile from, std::span<const Tile> all, Axis axis);
  // Its words are counted on links (line_time.h), so that its basis is "counted" and "analytical".
  void exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves);
  // An exchange in which every move goes to a neighbour: takes routes as CoreBudget::take_neighbours(). Its messages, one
  // for all rows between two cores, are executed on one of the lines, which are alike.
  void pass_to_neighbours(Tile from, Tile into, Axis axis, std::span<const RowMove> moves,
                          const AllReduceOptions& between);
  // Messages of which one end, or both, are cores of this mesh, and which take routes that the caller has taken. Calls
  // arrive(n) when messages[n] is there; all begin at once (relay_mesh.h). Without a device they arrive in order.
  void relay(std::string_view part, std::span<const RelayMessage> messages, FunctionRef<void(std::size_t)> arrive);
  void all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options);
  void clear(Tile tile);
  void multiply_add(Tile a, Tile b, Tile c, Operand operand);
  void multiply_vector(Tile x, Tile b, Tile y);

  // Calls work(values, i) for every row i of places, on several threads (ValueMesh::apply).
  template <class Work>
  void apply(LocalWork local, Work&& work) {
    values_.apply(work);
    spend(local);
  }

  // From now on all cycles are counted under this name; "": under the name of the operation. `timed`: what hops and words
  // of the loops and transfers that are timed meanwhile are; "counted" where they stand for others that run beside them.
  void account(std::string_view name, Basis timed = Basis::simulated) {
    account_ = name;
    timed_ = timed;
  }
  // `body` runs on other cores at the same time as what was counted before: its cycles are not counted.
  template <class Body>
  void beside(Body&& body) {
    const WaferCost counted = cost_;
    body();
    cost_ = counted;
  }
  void spend(LocalWork local);

  // The routes of relay() (CoreBudget).
  void take_relay(Axis axis) {
    if (budget_) budget_->take_relay(axis);
  }
  void take_neighbours(Axis axis, const AllReduceOptions& between) {
    if (budget_) budget_->take_neighbours(axis, between);
  }
  // Adds cycles that no operation here covers.
  void add_cycles(std::string_view part, double cycles, Basis basis);

  // The cost since the last call, or since the beginning: cycles by part, peak memory and routes.
  WaferCost take_cost();
  const std::optional<PlmrDevice>& device() const { return device_; }

 private:
  enum class Mode : std::uint8_t { alone, first_step, later_step };
  enum class Op : std::int64_t { skew, shift, broadcast, reduce, gather, exchange, all_reduce, multiply, vector };

  // Computes, times, or records the first step of a loop.
  template <class Do>
  void carry_out(std::string_view part, std::initializer_list<std::int64_t> what, Do&& operation);
  void charge(std::string_view part, FunctionRef<void(MaxPlusMesh&)> program);  // cached under key_
  PlmrDevice without_limits() const;                                            // this mesh keeps the accounts
  // Of a loop or transfer: all, and what remains without fitted costs.
  struct Cycles {
    double all = 0, hops_and_words = 0;
  };
  Cycles time(FunctionRef<void(MaxPlusMesh&)> program) const;
  void add_run(std::string_view part, const Cycles& cycles, Basis basis);

  ValueMesh values_;
  std::optional<PlmrDevice> device_;
  WaferSync sync_;
  std::optional<CoreBudget> budget_;
  std::map<int, Tile> counted_;  // by id of the values' tiles
  std::map<std::string, Tile, std::less<>> held_;
  std::map<std::vector<std::int64_t>, Cycles> known_;  // cached
  std::vector<std::int64_t> key_;
  Mode mode_ = Mode::alone;
  MaxPlusMesh* timing_ = nullptr;
  std::string account_;
  Basis timed_ = Basis::simulated;
  WaferCost cost_;
};

static_assert(Mesh<TimedMesh>);

}  // namespace heddle::mesh
