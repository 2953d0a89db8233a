// A mesh on which a program computes (value_mesh.h) and, where a device is given, is timed and held to a core's budgets
// as it runs: what mesh.h may say, and local work beside.
//
// Its cycles are those of the operations that were carried out. A loop (`repeat`), and what moves or multiplies outside
// of one, is timed by a MaxPlusMesh on which all cores begin at once, and the next begins when the last core is done:
// cores wait for each other between loops, within one as the synchronisation says. What was timed once is not timed
// again.
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
#include "wafer/mesh/value_mesh.h"

namespace heddle::mesh {

// Of a core, beside products: multiply-accumulates of its own, and values that element-wise work makes.
struct LocalWork {
  double macs = 0, values = 0;
};

class TimedMesh {
 public:
  // Without a device there are values alone: no cycles, and nothing is refused. `pool` must outlive it. Throws
  // InputError where the mesh does not lie on the device.
  TimedMesh(const std::optional<PlmrDevice>& device, const Grid& grid, ThreadPool& pool);

  const Grid& grid() const { return values_.grid(); }
  ThreadPool& pool() { return values_.pool(); }
  float* at(Tile tile, int i, int r, int c) { return values_.at(tile, i, r, c); }
  void settle() { values_.settle(); }

  void phase(std::string_view name);
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers);
  void release(Tile tile);
  // A skew of what was placed so from the beginning: no time.
  void place_skewed(Tile tile, Axis axis) { values_.skew({{tile, axis}}); }
  // Bytes of a core that are no tile, instead of those that were held under that name before.
  void hold(std::string_view name, double bytes);

  // body(0) ... body(count - 1) compute; where it is timed the body is called again.
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
  void exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves);
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

  // From now on cycles count under this name, whatever takes them; "": by what takes them.
  void account(std::string_view name) { account_ = name; }
  // What `body` does goes on at the same time as what was counted before, on other cores: its cycles are not counted.
  template <class Body>
  void beside(Body&& body) {
    const std::vector<WaferCost::Part> counted = parts_;
    body();
    parts_ = counted;
  }
  void spend(LocalWork local);

  // What no operation here stands for.
  void add_cycles(std::string_view part, double cycles);

  // Since the last call, or the beginning: cycles by part; memory and routes as they were at their fullest.
  WaferCost take_cost();
  const std::optional<PlmrDevice>& device() const { return device_; }

 private:
  enum class Mode : std::uint8_t { alone, first_step, later_step };
  enum class Op : std::int64_t { skew, shift, broadcast, reduce, gather, exchange, all_reduce, multiply, vector };

  // Computes, or is timed, or notes what the loop's first step does.
  template <class Do>
  void carry_out(std::string_view part, std::initializer_list<std::int64_t> what, Do&& operation);
  void charge(std::string_view part, FunctionRef<void(MaxPlusMesh&)> program);  // as key_ names it

  ValueMesh values_;
  std::optional<PlmrDevice> device_;
  std::optional<CoreBudget> budget_;
  std::map<int, Tile> counted_;  // of the values' tiles, by id
  std::map<std::string, Tile, std::less<>> held_;
  std::map<std::vector<std::int64_t>, double> known_;  // cycles of what was timed
  std::vector<std::int64_t> key_;
  Mode mode_ = Mode::alone;
  MaxPlusMesh* timing_ = nullptr;
  std::string account_;
  std::vector<WaferCost::Part> parts_;
};

static_assert(Mesh<TimedMesh>);

}  // namespace heddle::mesh
