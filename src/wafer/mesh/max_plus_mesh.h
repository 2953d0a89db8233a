// The mesh that tells the time: a clock a core, and each step of a program moves all clocks by a max-plus recurrence
// (clock_field.h). What a step costs is what wafer_cost.h charges; words travel as a whole, links are never shared
// (that INTERLEAVE lets no link carry two messages is proved in schedule/two_hop.h), and queues hold what is on its
// way. The discrete-event mesh is there to say how far that is right.
//
// Of each operation (W: the cycles in which its words pass a link, way: hops alpha + ramps):
//   shift      arrives W + way after its sender's step began. rendezvous: it leaves only when the tile that its
//              receiver sent on in the step before, out of the buffer it goes to, has arrived.
//   broadcast  a core goes on W + beta + ramps after the first word, which takes distance alpha from the root; so
//              multiplication comes after it. rendezvous: it leaves when all cores of the line are at that step.
//   reduce     each core of the chain passes on its sum alpha + beta after it has got it; the next step's sum follows
//              W + beta + ramps behind. The buffer is free for the step after the next one. Along x only.
//   gather     N - 1 relays of W + alpha + beta; those that follow each other along different axes go on at once
//   exchange, all_reduce as line_time.h says
// barrier: all cores begin a step when the last one could.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "wafer/mesh/clock_field.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// steady: as soon as eight steps add the same time to all cores, the rest is multiplied out, which is exact.
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

  // Of the last core, from the beginning.
  double cycles();
  // "compute", of one core, and under each phase's name what it took beyond; phases that took nothing are left out.
  std::vector<WaferCost::Part> breakdown();
  const CoreBudget& budget() const { return budget_; }
  // Cores times steps that were taken one by one.
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

  int run(int steps);  // takes 1 to `steps` steps as step_ says, empties it, says how many
  void finish();       // what is not yet in the clocks
  void finish_gathers();
  void drain();  // waits for a chain's last sums, forgets what is between steps

  ShiftWeights shift_weights(const Step& step) const;
  int steps_alike(const Step& step) const;  // that may follow with the same weights
  void advance(const Step& step, const ShiftWeights& weights, int steps);
  void advance_rendezvous(const ShiftWeights& weights, int steps);
  void advance_chain(const Step& step, const ShiftWeights& weights);
  void advance_broadcast(const Step& step);
  // Whether all that a next step depends on is where `before` was, but for the same time, which is added to `gained`.
  bool is_steady(const std::vector<ClockField>& before, Ticks& gained) const;
  std::vector<const ClockField*> state() const;
  std::vector<ClockField*> arrivals();

  // max_plus_clocks.cpp.
  // Every clock of a line becomes the line's latest and that line's delay; of several axes the later counts.
  struct LineDelays {
    Axis axis;
    std::vector<double> cycles;
  };
  void delay_lines(const std::vector<LineDelays>& delays);
  std::vector<Ticks> latest_of_lines(Axis axis) const;  // by the index across
  void all_at_the_latest();

  void make_room(double cycles);  // for clocks to advance so far: moves the base, makes ticks longer
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
  std::optional<std::pair<ClockField, ClockField>> sent_;  // by the chain of the step before, and of this one
  double scale_ = 1024;                                    // ticks a cycle
  double base_ = 0;                                        // cycles at which clocks are 0
  double bound_ = 0;                                       // ticks: no clock is above
  Ticks freed_ = 0;                                        // of the last chain

  std::vector<WaferCost::Part> phases_;
  double compute_ = 0, phase_compute_ = 0, phase_begin_ = 0;
  std::int64_t core_steps_ = 0;
};

}  // namespace heddle::mesh
