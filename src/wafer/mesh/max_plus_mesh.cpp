#include "wafer/mesh/max_plus_mesh.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "schedule/transfer.h"
#include "wafer/mesh/line_time.h"

namespace heddle::mesh {
namespace {

std::size_t subscript(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

MaxPlusMesh::MaxPlusMesh(const PlmrDevice& device, const Grid& grid, const MaxPlusOptions& options)
    : device_(device),
      grid_(grid),
      options_(options),
      budget_(device, grid),
      clock_(grid.cores.width, grid.cores.height) {}

double MaxPlusMesh::link_cycles(Tile tile) const {
  return kValueBytes * tile.rows * tile.columns / device_.link_bytes_per_cycle.value;
}

MaxPlusMesh::Movement MaxPlusMesh::movement(Tile tile, Axis axis, Root root) {
  const int tiles = grid_.tiles_along(across(axis));
  step_.compute += tiles * device_.call_cycles.value;
  return {.axis = axis, .words = tiles * link_cycles(tile), .root = root};
}

void MaxPlusMesh::shift(Tile tile, Axis axis) {
  finish_gathers();
  budget_.take_shift(axis);
  step_.shifts.push_back(movement(tile, axis));
}

void MaxPlusMesh::broadcast(Tile from, Tile, Axis axis, Root root) {
  finish_gathers();
  budget_.take_relay(axis);
  require(root.per_line == 0, "a broadcast from roots that differ by line is not timed");
  step_.broadcasts.push_back(movement(from, axis, root));
}

void MaxPlusMesh::reduce(Tile from, Tile, Axis axis, Root root) {
  finish_gathers();
  budget_.take_chain(axis);
  require(axis == Axis::x && !step_.chain, "one reduction a step, along x, is what is timed");
  step_.chain = movement(from, axis, root);
}

void MaxPlusMesh::gather(Tile from, std::span<const Tile>, Axis axis) {
  if (!step_.empty()) run(1);
  budget_.take_relay(axis);
  const int tiles = grid_.tiles_along(axis);
  gathers_.push_back({.axis = axis, .words = tiles * grid_.tiles_along(across(axis)) * link_cycles(from)});
}

void MaxPlusMesh::finish_gathers() {
  if (gathers_.empty()) return;
  std::vector<LineDelays> delays;
  double calls = 0;
  for (const Movement& gather : gathers_) {
    const Axis axis = gather.axis;
    const int relays = grid_.cores_along(axis) - 1;
    const double relay = gather.words + device_.alpha_cycles.value + device_.beta_cycles.value;
    delays.push_back({axis, std::vector<double>(subscript(grid_.cores_along(across(axis))), relays * relay)});
    calls += 1.0 * relays * grid_.tiles_a_core() * device_.call_cycles.value;
  }
  gathers_.clear();
  delay_lines(delays);
  step_.compute += calls;
}

void MaxPlusMesh::exchange(Tile from, Tile, Axis axis, std::span<const RowMove> moves) {
  finish();
  budget_.take_exchange(axis);
  const double words = grid_.tiles_along(across(axis)) * link_cycles({.rows = 1, .columns = from.columns});
  const double latency = exchange_latency(device_, grid_, axis, words, moves);
  delay_lines({{axis, std::vector<double>(subscript(grid_.cores_along(across(axis))), latency)}});
}

void MaxPlusMesh::skew(std::initializer_list<TileAxis> tiles) {
  finish();
  std::vector<LineDelays> delays;
  for (const auto& [tile, axis] : tiles) {
    budget_.take_shift(axis);
    const int side = grid_.places(axis), lines = grid_.cores_along(across(axis)),
              width = grid_.tiles_along(across(axis));
    const std::vector<double> latency =
        shift_latencies(device_, grid_, axis, width * link_cycles(tile), side / 2, options_.sync);
    LineDelays delay{axis, std::vector<double>(subscript(lines))};
    for (int line = 0; line < lines; ++line)
      for (int place = line * width; place < (line + 1) * width; ++place)
        delay.cycles[subscript(line)] = std::max(
            delay.cycles[subscript(line)], latency[subscript(std::min(place % side, side - place % side) % side)]);
    delays.push_back(std::move(delay));
  }
  delay_lines(delays);
}

void MaxPlusMesh::all_reduce(Tile tile, Axis axis, Reduction, const AllReduceOptions& options) {
  finish();
  budget_.take_all_reduce(axis, options);
  const int cores = grid_.cores_along(axis), lines = grid_.cores_along(across(axis));
  const double values = 1.0 * tile.rows * tile.columns * grid_.tiles_along(across(axis));
  make_room(4 * (values * 2 * kValueBytes / device_.link_bytes_per_cycle.value + cores) +
            4.0 * cores * (2 * device_.alpha_cycles.value + device_.beta_cycles.value + device_.ramp_cycles.value));
  const auto clock_of = [&](int line, int position) -> Ticks& {
    return axis == Axis::x ? clock_.row(position)[line] : clock_.row(line)[position];
  };
  std::vector<double> begin(subscript(cores)), before, end;
  for (int line = 0; line < lines; ++line) {
    for (int p = 0; p < cores; ++p) begin[subscript(grid_.ring_core(axis, p))] = clock_of(line, p) / scale_;
    if (begin != before) {  // lines that begin at the same times also end at the same times
      end = before = begin;
      mesh::all_reduce(device_, end, values, options);
    }
    for (int p = 0; p < cores; ++p) clock_of(line, p) = ticks(end[subscript(grid_.ring_core(axis, p))]);
  }
  if (options_.sync == WaferSync::barrier) all_at_the_latest();
  rebase();
}

void MaxPlusMesh::multiply_add(Tile a, Tile b, Tile, Operand operand) {
  finish_gathers();
  const int columns = operand == Operand::as_is ? b.columns : b.rows;
  step_.compute += grid_.tiles_a_core() * (a.columns * device_.call_cycles.value +
                                           1.0 * a.rows * a.columns * columns * device_.mac_cycles.value);
}

void MaxPlusMesh::multiply_vector(Tile x, Tile b, Tile) {
  finish_gathers();
  step_.compute += grid_.tiles_a_core() * x.rows *
                   (b.rows * device_.vector_slice_cycles.value + 1.0 * b.rows * b.columns * device_.mac_cycles.value);
}

void MaxPlusMesh::finish() {
  finish_gathers();
  if (!step_.empty()) run(1);
}

int MaxPlusMesh::steps_alike(const Step& step) const {
  if (step.chain) return 1;
  int alike = std::numeric_limits<int>::max();
  for (const Movement& b : step.broadcasts) {
    const int tiles = grid_.tiles_along(b.axis);
    alike = std::min(alike, tiles - b.root.place % tiles);  // until the root moves to another core
  }
  return alike;
}

std::vector<const ClockField*> MaxPlusMesh::state() const {
  if (!rendezvous_) return {&clock_};
  return {&clock_, &rendezvous_->x, &rendezvous_->y};
}

bool MaxPlusMesh::is_steady(const std::vector<ClockField>& before, Ticks& gained) const {
  const std::vector<const ClockField*> now = state();
  if (before.size() != now.size()) return false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Extrema d = difference(*now[i], before[i]);
    if (d.least != d.most || (i > 0 && d.most != gained)) return false;
    gained = d.most;
  }
  return true;
}

int MaxPlusMesh::run(int steps) {
  finish_gathers();
  const Step step = std::exchange(step_, {});
  const int alike = std::min(steps, steps_alike(step));
  compute_ += alike * step.compute;
  if (step.shifts.empty() && step.broadcasts.empty() && !step.chain) {
    base_ += alike * step.compute;
    return alike;
  }
  double longest = step.compute + device_.beta_cycles.value + 2 * device_.ramp_cycles.value;
  for (const auto& moves : {step.shifts, step.broadcasts})
    for (const Movement& m : moves) longest += m.words + grid_.cores_along(m.axis) * device_.alpha_cycles.value;
  if (step.chain)
    longest += 2 * step.chain->words + grid_.cores.width * (device_.alpha_cycles.value + device_.beta_cycles.value);

  const int block = std::min(ClockField::kGhostRows, grid_.cores.width);
  std::vector<ClockField> before;
  for (int done = 0; done < alike;) {
    const int now = std::min(block, alike - done);
    make_room(now * longest);
    const bool may_stop = options_.stop == Stop::steady && alike - done > block;
    if (may_stop) {
      const std::vector<const ClockField*> fields = state();
      while (before.size() < fields.size()) before.emplace_back(clock_.width(), clock_.height());
      for (std::size_t i = 0; i < fields.size(); ++i) copy(*fields[i], before[i]);
    }
    advance(step, shift_weights(step), now);  // weights in the current length of a tick
    bound_ += now * longest * scale_;
    core_steps_ += std::int64_t{now} * grid_.cores.width * grid_.cores.height;
    done += now;
    if (Ticks gained = 0; may_stop && is_steady(before, gained)) {
      const int blocks = (alike - done) / block;
      base_ += blocks * (gained / scale_);
      done += blocks * block;
    }
  }
  return alike;
}

void MaxPlusMesh::advance(const Step& step, const ShiftWeights& weights, int steps) {
  require(step.broadcasts.empty() || (step.shifts.empty() && !step.chain),
          "broadcasts and shifts in one step are not timed");
  if (step.broadcasts.empty() && !step.chain && options_.sync != WaferSync::barrier)
    return options_.sync == WaferSync::dataflow ? shift_steps(clock_, weights, steps)
                                                : advance_rendezvous(weights, steps);
  for (int i = 0; i < steps; ++i) {
    if (step.chain)
      advance_chain(step, weights);
    else if (!step.broadcasts.empty())
      advance_broadcast(step);
    else
      shift_steps(clock_, weights, 1);
    if (options_.sync == WaferSync::barrier) all_at_the_latest();
  }
}

ShiftWeights MaxPlusMesh::shift_weights(const Step& step) const {
  ShiftWeights weights{.compute = ticks(step.compute),
                       .x = std::vector<Ticks>(subscript(clock_.width()), kNever),
                       .y = std::vector<Ticks>(ClockField::lanes(clock_.height()), kNever)};
  for (const Axis axis : {Axis::x, Axis::y}) {
    double words = 0;
    bool moves = false;
    for (const Movement& m : step.shifts)
      if (m.axis == axis) moves = true, words += m.words;
    for (int p = 0; moves && p < grid_.cores_along(axis); ++p)
      (axis == Axis::x ? weights.x : weights.y)[subscript(p)] =
          ticks(words + grid_.hops(axis, p) * device_.alpha_cycles.value + device_.ramp_cycles.value);
  }
  return weights;
}

void MaxPlusMesh::advance_rendezvous(const ShiftWeights& weights, int steps) {
  if (!rendezvous_) rendezvous_.emplace(clock_.width(), clock_.height());
  rendezvous_steps(clock_, *rendezvous_, weights, steps);
}

void MaxPlusMesh::advance_broadcast(const Step& step) {
  double words = 0;
  for (const Movement& b : step.broadcasts) words = std::max(words, b.words);
  BroadcastWeights weights{.cost = ticks(step.compute + words + device_.beta_cycles.value + device_.ramp_cycles.value),
                           .x_start = std::vector<Ticks>(ClockField::lanes(clock_.height())),
                           .x_way = std::vector<Ticks>(subscript(clock_.width()), kNever),
                           .y_start = std::vector<Ticks>(subscript(clock_.width())),
                           .y_way = std::vector<Ticks>(ClockField::lanes(clock_.height()), kNever)};
  for (const Movement& b : step.broadcasts) {
    const int root = grid_.ring_position(b.axis, b.root.place % grid_.places(b.axis));
    std::vector<Ticks>& start = b.axis == Axis::x ? weights.x_start : weights.y_start;
    std::vector<Ticks>& way = b.axis == Axis::x ? weights.x_way : weights.y_way;
    const int lines = grid_.cores_along(across(b.axis));
    if (options_.sync == WaferSync::rendezvous) {
      std::ranges::copy(latest_of_lines(b.axis), start.begin());
    } else {
      for (int line = 0; line < lines; ++line)
        start[subscript(line)] = b.axis == Axis::x ? clock_.row(root)[line] : clock_.row(line)[root];
    }
    for (int p = 0; p < grid_.cores_along(b.axis); ++p) {
      const int hops = schedule::distance(grid_.ring_core(b.axis, p), grid_.ring_core(b.axis, root));
      way[subscript(p)] = ticks(hops * device_.alpha_cycles.value + b.words - words);
    }
  }
  broadcast_step(clock_, weights);
}

void MaxPlusMesh::advance_chain(const Step& step, const ShiftWeights& weights) {
  require(std::ranges::all_of(step.shifts, [](const Movement& m) { return m.axis == Axis::y; }),
          "shifts along a reduction's axis are not timed");
  if (!sent_) {
    sent_.emplace(ClockField(clock_.width(), clock_.height()), ClockField(clock_.width(), clock_.height()));
    fill(sent_->first, kNever);
    fill(sent_->second, kNever);
  }
  const double alpha = device_.alpha_cycles.value, words = step.chain->words;
  const double taken = options_.sync == WaferSync::dataflow ? 0 : alpha;
  ChainWeights chain{.stage = ticks(alpha + device_.beta_cycles.value),
                     .occupied = ticks(words + device_.beta_cycles.value + device_.ramp_cycles.value + taken),
                     .freed = ticks(words),
                     .order = std::vector<int>(subscript(clock_.width())),
                     .root = std::vector<Ticks>(ClockField::lanes(clock_.height()))};
  for (int p = 0; p < clock_.width(); ++p) chain.order[subscript(grid_.ring_core(Axis::x, p))] = p;
  for (int y = 0; y < clock_.height(); ++y) {
    const int place = step.chain->root.in_line(y * grid_.tiles_along(Axis::y), grid_.columns);
    chain.root[subscript(y)] = grid_.ring_core(Axis::x, grid_.ring_position(Axis::x, place));
  }
  chain_step(clock_, sent_->first, sent_->second, weights, chain);
  std::swap(sent_->first, sent_->second);
  freed_ = chain.freed;
}

void MaxPlusMesh::drain() {
  if (sent_)
    for (int x = 0; x < clock_.width(); ++x)
      for (int y = 0; y < clock_.height(); ++y)
        clock_.row(x)[y] = std::max(clock_.row(x)[y], sent_->first.row(x)[y] + freed_);
  sent_.reset();
  rendezvous_.reset();
  rebase();
}

double MaxPlusMesh::cycles() {
  finish();
  return base_ + extrema(clock_).most / scale_;
}

void MaxPlusMesh::phase(std::string_view name) {
  const double now = cycles();
  const double beyond = now - phase_begin_ - (compute_ - phase_compute_);
  if (beyond != 0) {
    const auto found = std::ranges::find(phases_, budget_.phase(), &WaferCost::Part::name);
    if (found != phases_.end())
      found->cycles += beyond;
    else
      phases_.push_back({budget_.phase(), beyond});
  }
  phase_begin_ = now;
  phase_compute_ = compute_;
  budget_.phase(name);
}

std::vector<WaferCost::Part> MaxPlusMesh::breakdown() {
  phase(budget_.phase());
  std::vector<WaferCost::Part> parts{{"compute", compute_}};
  parts.insert(parts.end(), phases_.begin(), phases_.end());
  return parts;
}

}  // namespace heddle::mesh
