// The mesh that measures time: one clock per core, advanced at each step of a program by a max-plus recurrence
// (clock_field.h). A step costs what wafer_cost.h charges. Words travel as a whole, queues are unbounded, and links are
// never shared (schedule/two_hop.h proves that in INTERLEAVE no link carries two messages). The discrete-event mesh
// measures how accurate that is.
//
// Operations (W: cycles in which the words pass a link; path: hops alpha + ramps):
//   shift      arrives W + path after its sender's step began. rendezvous: leaves only when the tile that its receiver
//              sent in the previous step, from the destination buffer, has arrived.
//   broadcast  a core continues W + beta + ramps after the first word, which takes distance alpha from the root; so
//              multiplication comes after it. rendezvous: leaves when all cores of the line are at that step.
//   reduce     each core of the chain passes on its sum alpha + beta after it has got it; the sum of the next step
//              follows W + beta + ramps behind. The buffer is free for the step after the next one. Along x only.
//   gather     N - 1 relays of W + alpha + beta; consecutive gathers along different axes overlap
//   exchange, all_reduce   see line_time.h
// barrier: all cores begin a step when the last one is ready.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "wafer/mesh/clock_field.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// steady: once eight steps add the same time to all cores, the remaining steps are extrapolated, which is exact.
enum class Stop : std::uint8_t { steady, never };

struct MaxPlusOptions {
  WaferSync sync = WaferSync::dataflow;
  Stop stop = Stop::steady;
};

class MaxPlusMesh {
 public:
  MaxPlusMesh(const PlmrDevice& device, const Grid& grid, const MaxPlusOptions& options = {});

  const Grid& grid() const { return grid_; }
  void phase(std::string_view name);
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers) {
    return budget_.allocate(name, rows, columns, buffers);
  }
  void release(Tile tile) { budget_.release(tile); }

  template <class Body>
  void repeat(int steps, Body&& body) {
    finish();
    for (int step = 0; step < steps;) {
      body(step);
      step += run(steps - step);
    }
    drain();
  }

  void skew(std::initializer_list<TileAxis> tiles);
  void shift(Tile tile, Axis axis);
  void broadcast(Tile from, Tile into, Axis axis, Root root);
  void reduce(Tile from, Tile into, Axis axis, Root root);
  void gather(Tile from, std::span<const Tile> all, Axis axis);
  void exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves);
  void all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options);
  void clear(Tile) {}
  void multiply_add(Tile a, Tile b, Tile c, Operand operand);
  void multiply_vector(Tile x, Tile b, Tile y);

  // Time of the last core since the beginning.
  double cycles();
  // "compute" of one core, and under each phase's name the time beyond it. Phases without time are left out.
  std::vector<WaferCost::Part> breakdown();
  const CoreBudget& budget() const { return budget_; }
  // Cores times simulated steps (without extrapolated ones).
  std::int64_t core_steps() const { return core_steps_; }

 private:
  struct Movement {
    Axis axis;
    double words = 0;
    Root root;
  };
  struct Step {
    double compute = 0;
    std::vector<Movement> shifts, broadcasts;
    std::optional<Movement> chain;
    bool empty() const { return compute == 0 && shifts.empty() && broadcasts.empty() && !chain; }
  };

  double link_cycles(Tile tile) const;  // of one tile
  Movement movement(Tile tile, Axis axis, Root root = {});

  int run(int steps);  // takes 1 to `steps` steps of step_ and empties it; returns how many
  void finish();       // applies what is not yet in the clocks
  void finish_gathers();
  void drain();  // waits for the last sums of a chain; forgets state between steps

  ShiftWeights shift_weights(const Step& step) const;
  int steps_alike(const Step& step) const;  // how many of the next steps have the same weights
  void advance(const Step& step, const ShiftWeights& weights, int steps);
  void advance_rendezvous(const ShiftWeights& weights, int steps);
  void advance_chain(const Step& step, const ShiftWeights& weights);
  void advance_broadcast(const Step& step);
  // Whether the state that the next step depends on equals `before` plus one constant; adds that constant to `gained`.
  bool is_steady(const std::vector<ClockField>& before, Ticks& gained) const;
  std::vector<const ClockField*> state() const;
  std::vector<ClockField*> arrivals();

  // Implemented in max_plus_clocks.cpp.
  // Every clock of a line becomes the latest of the line plus the line's delay; with several axes the later one counts.
  struct LineDelays {
    Axis axis;
    std::vector<double> cycles;
  };
  void delay_lines(const std::vector<LineDelays>& delays);
  std::vector<Ticks> latest_of_lines(Axis axis) const;  // by the index across
  void all_at_the_latest();

  void make_room(double cycles);  // lets clocks advance this far: moves the base, makes ticks longer
  void rebase();
  void scale_by(double factor);
  Ticks ticks(double cycles) const;

  PlmrDevice device_;
  Grid grid_;
  MaxPlusOptions options_;
  CoreBudget budget_;
  Step step_;
  std::vector<Movement> gathers_;

  ClockField clock_;
  std::optional<Rendezvous> rendezvous_;
  std::optional<std::pair<ClockField, ClockField>> sent_;  // by the chain of the previous step, and of this one
  double scale_ = 1024;                                    // ticks a cycle
  double base_ = 0;                                        // the cycle at which clocks are 0
  double bound_ = 0;                                       // ticks: upper bound of all clocks
  Ticks freed_ = 0;                                        // of the last chain

  std::vector<WaferCost::Part> phases_;
  double compute_ = 0, phase_compute_ = 0, phase_begin_ = 0;
  std::int64_t core_steps_ = 0;
};

}  // namespace heddle::mesh
