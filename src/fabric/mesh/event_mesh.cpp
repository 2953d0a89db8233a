// The programs as steps and messages. event_run.cpp plays them.
#include "fabric/mesh/event_mesh.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/two_hop.h"

namespace heddle::mesh {
namespace {

constexpr int kLargestSide = 32;

int rounded(double cycles) {
  return static_cast<int>(std::lround(cycles));
}

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

EventMesh::EventMesh(const PlmrDevice& device, const Grid& grid, WaferSync sync)
    : grid_(grid),
      sync_(sync),
      budget_(device, grid),
      alpha_(std::max(1, rounded(device.alpha_cycles.value))),
      beta_(rounded(device.beta_cycles.value)),
      ramp_(rounded(device.ramp_cycles.value)),
      link_bytes_(device.link_bytes_per_cycle.value),
      call_cycles_(device.call_cycles.value),
      mac_cycles_(device.mac_cycles.value),
      vector_slice_cycles_(device.vector_slice_cycles.value) {
  require(grid.cores.width <= kLargestSide && grid.cores.height <= kLargestSide, "an event mesh of {} x {} cores",
          grid.cores.width, grid.cores.height);
}

EventMesh::Step& EventMesh::step(int index) {
  while (steps_.size() <= at(index)) {
    steps_.emplace_back();
    steps_.back().cores.resize(at(grid_.cores.width * grid_.cores.height));
  }
  return steps_[at(index)];
}

void EventMesh::close_step() {
  if (!open_ && compute_ == 0) return;
  step(current_++).compute += std::lround(compute_);
  compute_ = 0;
  open_ = false;
}

int EventMesh::core_at(Axis axis, int line, int core) const {
  return axis == Axis::x ? line * grid_.cores.width + core : core * grid_.cores.width + line;
}

int EventMesh::core_in_ring(Axis axis, int line, int position) const {
  return core_at(axis, grid_.ring_core(across(axis), line), grid_.ring_core(axis, position));
}

int EventMesh::words_of(Tile tile, Axis axis) const {
  return grid_.tiles_along(across(axis)) * rounded(std::ceil(kValueBytes * tile.rows * tile.columns / link_bytes_));
}

std::vector<int> EventMesh::straight(int from, int to) const {
  const int width = grid_.cores.width, stride = from / width == to / width ? 1 : width;
  std::vector<int> path{from};
  while (path.back() != to) path.push_back(path.back() + (to > from ? stride : -stride));
  return path;
}

int EventMesh::add_message(const std::vector<int>& path, Message message, bool is_multicast) {
  std::vector<int> key = path;
  key.push_back(is_multicast ? -2 : -1);
  const auto [entry, is_new] = channel_of_.try_emplace(std::move(key), static_cast<int>(channels_.size()));
  if (is_new)
    channels_.push_back(
        {.path = path, .multicast = is_multicast, .queues = std::vector<std::deque<Word>>(path.size())});
  const int id = static_cast<int>(messages_.size());
  message.channel = entry->second;
  message.step = current_;
  message.taken.assign(path.size(), 0);
  message.copies_left = message.words * (is_multicast ? static_cast<int>(path.size()) - 1 : 1);
  channels_[at(message.channel)].messages.push_back(id);
  messages_.push_back(std::move(message));
  open_ = true;
  return id;
}

void EventMesh::shift_line(Axis axis, int line, int words) {
  const int cores = grid_.cores_along(axis);
  LastShift& last = last_shift_[{axis, line}];
  const bool follows = !last.messages.empty() && last.step == current_ - 1;
  std::vector<int> sent(at(cores));
  for (int p = 0; p < cores; ++p) {
    const int sender = (p + 1) % cores, to = core_in_ring(axis, line, p);
    Message message{.words = words, .ramp = ramp_, .due = current_};
    if (follows) {  // what the receiver passed on before came out of the buffer that this one goes to
      message.accept_sent = {last.messages[at(p)]};
      if (sync_ == WaferSync::rendezvous) message.needs_received = message.accept_sent;
    }
    sent[at(sender)] = add_message(straight(core_in_ring(axis, line, sender), to), std::move(message));
    step(current_ + 1).cores[at(to)].begin_received.push_back({sent[at(sender)], messages_.back().taken.size() - 1});
  }
  last = {.step = current_, .messages = std::move(sent)};
}

void EventMesh::shift(Tile tile, Axis axis) {
  budget_.take_shift(axis);
  compute_ += grid_.tiles_along(across(axis)) * call_cycles_;
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) shift_line(axis, line, words_of(tile, axis));
}

void EventMesh::skew(std::initializer_list<TileAxis> tiles) {
  close_step();
  for (int i = 1; i <= grid_.columns / 2; ++i) {
    for (const auto& [tile, axis] : tiles) {
      budget_.take_shift(axis);
      const int width = grid_.tiles_along(across(axis)), side = grid_.places(axis);
      for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
        int steps = 0;
        for (int place = line * width; place < (line + 1) * width; ++place)
          steps = std::max(steps, std::min(place, side - place));
        if (i <= steps) shift_line(axis, line, words_of(tile, axis));
      }
    }
    close_step();
  }
}

std::vector<int> EventMesh::multicast(Axis axis, int line, int from, const Message& message) {
  std::vector<int> sent;
  for (const int end : {0, grid_.cores_along(axis) - 1})
    if (end != from)
      sent.push_back(add_message(straight(core_at(axis, line, from), core_at(axis, line, end)), message, true));
  return sent;
}

void EventMesh::await_multicast(int message) {
  const std::vector<int>& path = channels_[at(messages_[at(message)].channel)].path;
  for (std::size_t i = 1; i < path.size(); ++i)
    step(current_ + 1).cores[at(path[i])].begin_received.push_back({message, i});
}

void EventMesh::broadcast(Tile from, Tile, Axis axis, Root root) {
  budget_.take_relay(axis);
  compute_ += grid_.tiles_along(across(axis)) * call_cycles_;
  step(current_).compute_delay = beta_;
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    const int place = root.in_line(line * grid_.tiles_along(across(axis)), grid_.places(axis));
    const int origin = grid_.ring_core(axis, grid_.ring_position(axis, place));
    const int physical_line = grid_.ring_core(across(axis), line);
    Message message{.words = words_of(from, axis), .ramp = ramp_, .due = current_};
    for (int core = 0; sync_ == WaferSync::rendezvous && core < grid_.cores_along(axis); ++core)
      message.all_begun.push_back(core_at(axis, physical_line, core));
    for (const int id : multicast(axis, physical_line, origin, message)) {
      const std::vector<int>& path = channels_[at(messages_[at(id)].channel)].path;
      step(current_).cores[at(path.front())].compute_sent.push_back(id);
      for (std::size_t i = 1; i < path.size(); ++i)
        step(current_).cores[at(path[i])].compute_received.push_back({id, i});
    }
  }
}

void EventMesh::reduce(Tile from, Tile, Axis axis, Root root) {
  budget_.take_chain(axis);
  compute_ += grid_.tiles_along(across(axis)) * call_cycles_;
  const int cores = grid_.cores_along(axis), words = words_of(from, axis);
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    const int place = root.in_line(line * grid_.tiles_along(across(axis)), grid_.places(axis));
    const int top = grid_.ring_core(axis, grid_.ring_position(axis, place));
    const int physical_line = grid_.ring_core(across(axis), line);
    for (const int direction : {1, -1}) {
      std::vector<int> parents;
      for (int k = direction > 0 ? 0 : cores - 1; k != top; k += direction) {
        const int sender = core_at(axis, physical_line, k);
        const int id =
            add_message(straight(sender, core_at(axis, physical_line, k + direction)), {.words = words,
                                                                                        .when = When::has_computed,
                                                                                        .delay = beta_,
                                                                                        .parents = parents,
                                                                                        .accepted = When::has_computed,
                                                                                        .due = current_ + 1});
        step(current_ + 2).cores[at(sender)].begin_sent.push_back(id);
        parents = {id};
      }
    }
  }
}

void EventMesh::gather(Tile from, std::span<const Tile>, Axis axis) {
  if (compute_ > 0) close_step();  // another axis's gather goes on at once
  budget_.take_relay(axis);
  const int cores = grid_.cores_along(axis), words = words_of(from, axis) * grid_.tiles_along(axis);
  step(current_ + 1).compute += std::lround(1.0 * (cores - 1) * grid_.tiles_a_core() * call_cycles_);
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line)
    for (const int direction : {1, -1}) {
      std::vector<std::vector<int>> parents(at(cores));  // the tile's last message, by where the tile is from
      for (int relay = 0; relay + 1 < cores; ++relay)    // so a core sends its own tile first, then its neighbour's
        for (int origin = 0; origin < cores; ++origin) {
          const int sender = origin + relay * direction, to = sender + direction;
          if (std::min(sender, to) < 0 || std::max(sender, to) >= cores) continue;
          const int receiver = core_at(axis, line, to);
          const int id = add_message(straight(core_at(axis, line, sender), receiver), {.words = words,
                                                                                       .delay = beta_,
                                                                                       .parents = parents[at(origin)],
                                                                                       .follows = Follows::whole,
                                                                                       .due = current_});
          step(current_ + 1).cores[at(receiver)].begin_received.push_back({id, 1});
          parents[at(origin)] = {id};
        }
    }
}

void EventMesh::exchange(Tile from, Tile, Axis axis, std::span<const RowMove> moves) {
  close_step();
  budget_.take_exchange(axis);
  const int cores = grid_.cores_along(axis);
  const int words = grid_.tiles_along(across(axis)) * rounded(std::ceil(kValueBytes * from.columns / link_bytes_));
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    std::vector<std::vector<int>> parents(moves.size());
    for (int hop = 0; hop + 1 < cores; ++hop)  // a core's own rows first
      for (std::size_t i = 0; i < moves.size(); ++i) {
        const int origin = grid_.ring_core(axis, grid_.ring_position(axis, moves[i].from_place));
        const int goal = grid_.ring_core(axis, grid_.ring_position(axis, moves[i].to_place));
        if (std::abs(goal - origin) <= hop) continue;
        const int direction = goal > origin ? 1 : -1, sender = origin + hop * direction;
        const int receiver = core_at(axis, line, sender + direction);
        const int id = add_message(
            straight(core_at(axis, line, sender), receiver),
            {.words = words, .delay = beta_, .ramp = hop == 0 ? ramp_ : 0, .parents = parents[i], .due = current_});
        step(current_ + 1).cores[at(receiver)].begin_received.push_back({id, 1});
        parents[i] = {id};
      }
  }
  close_step();
}

void EventMesh::all_reduce(Tile tile, Axis axis, Reduction, const AllReduceOptions& options) {
  close_step();
  require(options.sync == WaferSync::dataflow, "an all-reduce is played in dataflow");
  budget_.take_all_reduce(axis, options);
  const int values = tile.rows * tile.columns * grid_.tiles_along(across(axis));
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    switch (options.method) {
      case WaferAllReduce::k_tree:
        k_tree(axis, line, values, options.phases);
        break;
      case WaferAllReduce::pipeline:
        pipeline(axis, line, values);
        break;
      case WaferAllReduce::ring:
        ring(axis, line, (values + 2 * grid_.cores_along(axis) - 1) / (2 * grid_.cores_along(axis)));
        break;
    }
  }
  close_step();
}

void EventMesh::k_tree(Axis axis, int line, int values, int phases) {
  const auto tree = schedule::KTree::of(grid_.cores_along(axis), phases);
  std::vector<std::vector<int>> arriving(at(tree.size));  // at each core
  const auto pass_on = [&](int from, int to) {
    const int id = add_message(straight(core_at(axis, line, from), core_at(axis, line, to)),
                               {.words = values, .delay = beta_, .parents = arriving[at(from)], .due = current_});
    arriving[at(to)].push_back(id);
  };
  for (int phase = 0; phase < phases; ++phase)
    for (int group = 0; group < tree.groups(phase); ++group) {
      const int first = group * tree.fan, last = first + tree.group_size(phase, group) - 1;
      const int root = tree.root_member(phase, group);
      for (int member = first; member < root; ++member) pass_on(tree.core(phase, member), tree.core(phase, member + 1));
      for (int member = last; member > root; --member) pass_on(tree.core(phase, member), tree.core(phase, member - 1));
    }
  const Message result{
      .words = (values + 1) / 2, .parents = arriving[at(tree.root())], .follows = Follows::whole, .due = current_};
  for (const int id : multicast(axis, line, tree.root(), result)) await_multicast(id);
}

void EventMesh::pipeline(Axis axis, int line, int values) {
  std::vector<int> parents;
  for (int k = grid_.cores_along(axis) - 1; k > 0; --k)
    parents = {add_message(straight(core_at(axis, line, k), core_at(axis, line, k - 1)),
                           {.words = values, .delay = beta_, .parents = parents, .due = current_})};
  for (const int id : multicast(axis, line, 0, {.words = values, .parents = parents, .due = current_}))
    await_multicast(id);
}

void EventMesh::ring(Axis axis, int line, int words) {
  const schedule::TwoHop order{grid_.cores_along(axis)};
  std::vector<int> before(at(order.size), -1);  // what each core got in the step before
  for (int i = 0; i < 2 * order.steps(); ++i) {
    std::vector<int> now(at(order.size));
    for (int core = 0; core < order.size; ++core) {
      const int to = order.send_index(core);
      Message message{.words = words, .delay = beta_, .follows = Follows::whole, .due = current_};
      if (before[at(core)] >= 0) message.parents = {before[at(core)]};
      now[at(to)] = add_message(straight(core_at(axis, line, core), core_at(axis, line, to)), std::move(message));
      step(current_ + 1)
          .cores[at(core_at(axis, line, to))]
          .begin_received.push_back({now[at(to)], messages_.back().taken.size() - 1});
    }
    before = std::move(now);
  }
}

void EventMesh::multiply_add(Tile a, Tile b, Tile, Operand operand) {
  const int columns = operand == Operand::as_is ? b.columns : b.rows;
  compute_ += grid_.tiles_a_core() * (a.columns * call_cycles_ + 1.0 * a.rows * a.columns * columns * mac_cycles_);
}

void EventMesh::multiply_vector(Tile, Tile b, Tile) {
  compute_ += grid_.tiles_a_core() * (b.rows * vector_slice_cycles_ + 1.0 * b.rows * b.columns * mac_cycles_);
}

}  // namespace heddle::mesh
