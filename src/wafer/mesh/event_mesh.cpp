// Turns programs into steps and messages. event_run.cpp executes them.
#include "wafer/mesh/event_mesh.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

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
      values_a_word_(std::max(1, rounded(device.link_bytes_per_cycle.value / kValueBytes))),
      values_(std::make_unique<EventValues>(grid)),
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
  if (!open_ && compute_ == 0 && (steps_.size() <= at(current_) || steps_[at(current_)].as_computed.empty())) return;
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
    channels_.push_back({.path = path, .multicast = is_multicast, .queues = std::vector<WordQueue>(path.size())});
  const int id = static_cast<int>(messages_.size());
  message.channel = entry->second;
  message.step = current_;
  message.taken.assign(path.size(), 0);
  message.copies_left = message.words * (is_multicast ? static_cast<int>(path.size()) - 1 : 1);
  const bool waits =
      message.request >= 0 || (message.parents.size() == 1 && messages_[at(message.parents[0])].next == id);
  messages_.push_back(std::move(message));
  if (!waits) enqueue(id);
  open_ = true;
  return id;
}

int EventMesh::position_of(Axis axis, int core) const {
  return grid_.order == LineOrder::natural ? core : schedule::TwoHop{grid_.cores_along(axis)}.position(core);
}

void EventMesh::for_places(int core, const std::function<void(int i, int j)>& work) const {
  const int rows = grid_.tiles_along(Axis::y), columns = grid_.tiles_along(Axis::x);
  const int row = position_of(Axis::y, along(Axis::y, core)), column = position_of(Axis::x, along(Axis::x, core));
  for (int i = row * rows; i < (row + 1) * rows; ++i)
    for (int j = column * columns; j < (column + 1) * columns; ++j) work(i, j);
}

void EventMesh::shift_line(Tile tile, Axis axis, int line, int direction, const std::vector<int>& movers) {
  const int cores = grid_.cores_along(axis), tiles = grid_.tiles_along(axis);
  const int words = words_of(tile, axis) / grid_.tiles_along(across(axis)) * static_cast<int>(movers.size());
  LastShift& last = last_shift_[{axis, line, direction}];
  const bool follows = last.step == current_ - 1;
  std::vector<int> sent(at(cores));
  for (int p = 0; p < cores; ++p) {
    const int sender = (p + direction + cores) % cores, to = core_in_ring(axis, line, p);
    const int from_place = direction > 0 ? sender * tiles : (sender + 1) * tiles - 1;
    const int to_place = direction > 0 ? (p + 1) * tiles - 1 : p * tiles;
    const auto own = [=, values = values_.get(), in = values_->current(tile), width = values_a_word_](int value) {
      const auto [q, element, exists] = EventValues::numbered(tile, width, value);
      return exists ? values->element(tile, in, axis, from_place, movers[at(q)], element) : 0;
    };
    const auto arrive = [=, values = values_.get(), in = values_->current(tile), width = values_a_word_](int, int value,
                                                                                                         float x) {
      const auto [q, element, exists] = EventValues::numbered(tile, width, value);
      if (exists) values->other_element(tile, in, axis, to_place, movers[at(q)], element) = x;
    };
    Message message{.words = words, .ramp = ramp_, .due = current_};
    message.payload = {.values_a_word = values_a_word_, .own = own, .arrive = arrive};
    if (!last.messages.empty())  // the receiver's previous send must have left this buffer
      message.accept_sent = {last.messages[at(p)]};
    if (follows && sync_ == WaferSync::rendezvous) message.needs_received = message.accept_sent;
    sent[at(sender)] = add_message(straight(core_in_ring(axis, line, sender), to), std::move(message));
    CoreStep& next = step(current_ + 1).cores[at(to)];
    next.begin_received.push_back({sent[at(sender)], messages_.back().taken.size() - 1});
    if (tiles > 1)  // the other places copy from each other, once the buffer's words have left
      next.as_begun.emplace_back([=, values = values_.get(), in = values_->current(tile)] {
        for (int k = p * tiles; k < (p + 1) * tiles; ++k)
          for (const int q : movers)
            for (int e = 0; k != to_place && e < tile.rows * tile.columns; ++e)
              values->other_element(tile, in, axis, k, q, e) = values->element(tile, in, axis, k + direction, q, e);
      });
  }
  last = {.step = current_, .messages = std::move(sent)};
}

void EventMesh::shift(Tile tile, Axis axis) {
  budget_.take_shift(axis);
  const int width = grid_.tiles_along(across(axis));
  compute_ += width * call_cycles_;
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    std::vector<int> movers(at(width));
    for (int q = 0; q < width; ++q) movers[at(q)] = line * width + q;
    shift_line(tile, axis, line, 1, movers);
  }
  values_->turn(tile);
}

// Each place moves in the shorter direction.
void EventMesh::skew(std::initializer_list<TileAxis> tiles) {
  close_step();
  for (int i = 1; i <= grid_.columns / 2; ++i) {
    for (const auto& [tile, axis] : tiles) {
      budget_.take_shift(axis);
      const int width = grid_.tiles_along(across(axis)), side = grid_.places(axis);
      std::vector<int> turned;
      for (int line = 0; line < grid_.cores_along(across(axis)); ++line)
        for (const int direction : {1, -1}) {
          std::vector<int> movers;
          for (int place = line * width; place < (line + 1) * width; ++place) {
            const int ahead = place % side, back = side - ahead;
            if (i <= std::min(ahead, back) && (ahead <= back) == (direction == 1)) movers.push_back(place);
          }
          if (!movers.empty()) shift_line(tile, axis, line, direction, movers);
          turned.insert(turned.end(), movers.begin(), movers.end());
        }
      for (const int place : turned) values_->turn(tile, axis, place);
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

void EventMesh::broadcast(Tile from, Tile into, Axis axis, Root root) {
  require(root.per_line == 0, "a broadcast from roots that differ by line is not played");
  budget_.take_relay(axis);
  compute_ += grid_.tiles_along(across(axis)) * call_cycles_;
  step(current_).compute_delay = beta_;
  const int tiles = grid_.tiles_along(axis), width = grid_.tiles_along(across(axis)),
            place = root.place % grid_.places(axis);
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    const int origin = grid_.ring_core(axis, grid_.ring_position(axis, place));
    const int physical_line = grid_.ring_core(across(axis), line), first_across = line * width;
    Message message{.words = words_of(from, axis), .ramp = ramp_, .due = current_};
    const auto put = [=, values = values_.get(), in = values_->current(into), number = values_a_word_](
                         int position, int value, float x) {
      const auto [q, element, exists] = EventValues::numbered(into, number, value);
      for (int k = 0; exists && k < tiles; ++k)
        values->element(into, in, axis, position * tiles + k, first_across + q, element) = x;
    };
    const auto own = [=, values = values_.get(), in = values_->current(from), number = values_a_word_](int value) {
      const auto [q, element, exists] = EventValues::numbered(from, number, value);
      return exists ? values->element(from, in, axis, place, first_across + q, element) : 0;
    };
    message.payload = {.values_a_word = values_a_word_, .own = own};
    const int number_of_values = message.words * values_a_word_, position = grid_.ring_position(axis, place);
    step(current_).cores[at(core_at(axis, physical_line, origin))].as_begun.emplace_back([=] {
      for (int value = 0; value < number_of_values; ++value) put(position, value, own(value));
    });
    for (int core = 0; sync_ == WaferSync::rendezvous && core < grid_.cores_along(axis); ++core)
      message.all_begun.push_back(core_at(axis, physical_line, core));
    for (const int id : multicast(axis, physical_line, origin, message)) {
      const std::vector<int>& path = channels_[at(messages_[at(id)].channel)].path;
      std::vector<int> positions;
      positions.reserve(path.size());
      for (const int core : path) positions.push_back(position_of(axis, along(axis, core)));
      messages_[at(id)].payload.arrive = [=](int k, int value, float x) { put(positions[at(k)], value, x); };
      step(current_).cores[at(path.front())].compute_sent.push_back(id);
      for (std::size_t i = 1; i < path.size(); ++i)
        step(current_).cores[at(path[i])].compute_received.push_back({id, i});
    }
  }
}

void EventMesh::reduce(Tile from, Tile into, Axis axis, Root root) {
  budget_.take_chain(axis);
  compute_ += grid_.tiles_along(across(axis)) * call_cycles_;
  const int cores = grid_.cores_along(axis), tiles = grid_.tiles_along(axis), width = grid_.tiles_along(across(axis));
  const auto root_of = [=, this](int place) { return root.in_line(place, grid_.places(axis)); };
  // Across the axis, places of a line whose roots are on the same core share a message.
  for (int place = 0; place < grid_.places(across(axis));) {
    const int line = place / width, first = place, top_position = grid_.ring_position(axis, root_of(place));
    while (place < (line + 1) * width && grid_.ring_position(axis, root_of(place)) == top_position) ++place;
    const int words = words_of(from, axis) / width * (place - first), top = grid_.ring_core(axis, top_position);
    const int physical_line = grid_.ring_core(across(axis), line);
    const auto own = [=, values = values_.get(), in = values_->current(from), number = values_a_word_](int position,
                                                                                                       int value) {
      const auto [q, element, exists] = EventValues::numbered(from, number, value);
      float sum = 0;
      for (int k = 0; exists && k < tiles; ++k)
        sum += values->element(from, in, axis, position * tiles + k, first + q, element);
      return sum;
    };
    const auto target = [=, values = values_.get(), in = values_->current(into),
                         number = values_a_word_](int value) -> float* {
      const auto [q, element, exists] = EventValues::numbered(into, number, value);
      return exists ? &values->element(into, in, axis, root_of(first + q), first + q, element) : nullptr;
    };
    const int number_of_values = words * values_a_word_, top_core = core_at(axis, physical_line, top);
    step(current_).as_computed.emplace_back([=](int core) {
      for (int value = 0; core == top_core && value < number_of_values; ++value)
        if (float* sum = target(value)) *sum = own(top_position, value);
    });
    for (const int direction : {1, -1}) {
      std::vector<int> parents;
      for (int k = direction > 0 ? 0 : cores - 1; k != top; k += direction) {
        const int sender = core_at(axis, physical_line, k), position = position_of(axis, k);
        Message message{.words = words,
                        .when = When::has_computed,
                        .delay = beta_,
                        .parents = parents,
                        .accepted = When::has_computed,
                        .due = current_ + 1};
        message.payload = {.values_a_word = values_a_word_, .own = [=](int value) { return own(position, value); }};
        if (k + direction == top)
          message.payload.arrive = [=](int, int value, float x) {
            if (float* sum = target(value)) *sum += x;
          };
        const int id = add_message(straight(sender, core_at(axis, physical_line, k + direction)), std::move(message));
        step(current_ + 2).cores[at(sender)].begin_sent.push_back(id);
        parents = {id};
      }
    }
  }
  values_->turn(from);
}

void EventMesh::gather(Tile from, std::span<const Tile> all, Axis axis) {
  if (compute_ > 0) close_step();  // gathers along different axes may overlap
  budget_.take_relay(axis);
  const int cores = grid_.cores_along(axis), tiles = grid_.tiles_along(axis), width = grid_.tiles_along(across(axis));
  const int words = words_of(from, axis) * tiles;
  step(current_ + 1).compute += std::lround(1.0 * (cores - 1) * grid_.tiles_a_core() * call_cycles_);
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    const int first_across = position_of(across(axis), line) * width;
    // A message holds tiles ordered by place along the axis, then by place across.
    const auto own = [=, values = values_.get(), in = values_->current(from), number = values_a_word_](int position,
                                                                                                       int value) {
      const auto [n, element, exists] = EventValues::numbered(from, number, value);
      return exists ? values->element(from, in, axis, position * tiles + n / width, first_across + n % width, element)
                    : 0;
    };
    const auto put = [=, values = values_.get(), number = values_a_word_,
                      copies = std::vector<Tile>(all.begin(), all.end())](int origin, int position, int value,
                                                                          float x) {
      const auto [n, element, exists] = EventValues::numbered(from, number, value);
      if (!exists) return;
      const Tile copy = copies[at(origin * tiles + n / width)];
      for (int k = 0; k < tiles; ++k)
        values->element(copy, values->current(copy), axis, position * tiles + k, first_across + n % width, element) = x;
    };
    for (int core = 0; core < cores; ++core)
      step(current_).cores[at(core_at(axis, line, core))].as_begun.emplace_back(
          [=, position = position_of(axis, core), count = words * values_a_word_] {
            for (int value = 0; value < count; ++value) put(position, position, value, own(position, value));
          });
    for (const int direction : {1, -1}) {
      std::vector<std::vector<int>> parents(at(cores));  // the tile's last message, by where the tile is from
      for (int relay = 0; relay + 1 < cores; ++relay)    // so a core sends its own tile first, then its neighbour's
        for (int origin = 0; origin < cores; ++origin) {
          const int sender = origin + relay * direction, to = sender + direction;
          if (std::min(sender, to) < 0 || std::max(sender, to) >= cores) continue;
          const int receiver = core_at(axis, line, to);
          Message message{.words = words,
                          .delay = beta_,
                          .parents = parents[at(origin)],
                          .follows = Follows::whole,
                          .due = current_};
          message.payload.values_a_word = values_a_word_;
          const int origin_position = position_of(axis, origin), to_position = position_of(axis, to);
          if (relay == 0) message.payload.own = [=](int value) { return own(origin_position, value); };
          message.payload.arrive = [=](int, int value, float x) { put(origin_position, to_position, value, x); };
          const int id = add_message(straight(core_at(axis, line, sender), receiver), std::move(message));
          step(current_ + 1).cores[at(receiver)].begin_received.push_back({id, 1});
          parents[at(origin)] = {id};
        }
    }
  }
}

namespace {

int line_core(const Grid& grid, Axis axis, int place) {
  return grid.ring_core(axis, grid.ring_position(axis, place));
}

// Moves of one row that go the same way, or stay (no hops): one message, to the farthest core.
struct Multicast {
  int origin = 0, direction = 1, hops = 0;
  std::vector<RowMove> moves;
};

std::vector<Multicast> multicasts_of(const Grid& grid, Axis axis, std::span<const RowMove> moves) {
  std::vector<Multicast> result;
  for (const RowMove& move : moves) {
    const int origin = line_core(grid, axis, move.from_place), goal = line_core(grid, axis, move.to_place);
    const int hops = std::abs(goal - origin), direction = goal < origin ? -1 : 1;
    const auto same = std::ranges::find_if(result, [&](const Multicast& other) {
      return other.moves.front().from_place == move.from_place && other.moves.front().from_row == move.from_row &&
             other.direction == direction && (other.hops == 0) == (hops == 0);
    });
    Multicast& rows = same == result.end() ? result.emplace_back() : *same;
    rows.origin = origin;
    rows.direction = direction;
    rows.hops = std::max(rows.hops, hops);
    rows.moves.push_back(move);
  }
  return result;
}

}  // namespace

void EventMesh::exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves) {
  close_step();
  budget_.take_exchange(axis);
  const int cores = grid_.cores_along(axis), width = grid_.tiles_along(across(axis));
  const Tile row{.id = from.id, .rows = 1, .columns = from.columns};
  const int words = words_of(row, axis);
  const std::vector<Multicast> multicasts = multicasts_of(grid_, axis, moves);
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    const int first_across = position_of(across(axis), line) * width;
    std::vector<std::vector<int>> parents(multicasts.size());
    for (int hop = 0; hop + 1 < cores; ++hop)  // a core's own rows first
      for (std::size_t i = 0; i < multicasts.size(); ++i) {
        const Multicast& rows = multicasts[i];
        const auto own = [=, move = rows.moves.front(), values = values_.get(), in = values_->current(from),
                          number = values_a_word_](int value) {
          const auto [q, e, exists] = EventValues::numbered(row, number, value);
          return exists ? values->element(from, in, axis, move.from_place, first_across + q,
                                          move.from_row * from.columns + e)
                        : 0;
        };
        const auto put_at = [=, this, in = values_->current(into)](int core) {
          std::vector<RowMove> here;
          for (const RowMove& move : rows.moves)
            if (line_core(grid_, axis, move.to_place) == core) here.push_back(move);
          return [=, values = values_.get(), number = values_a_word_](int, int value, float x) {
            const auto [q, e, exists] = EventValues::numbered(row, number, value);
            if (!exists) return;
            for (const RowMove& move : here)
              values->element(into, in, axis, move.to_place, first_across + q, move.to_row * into.columns + e) = x;
          };
        };
        if (rows.hops == 0 && hop == 0)
          step(current_).cores[at(core_at(axis, line, rows.origin))].as_begun.emplace_back(
              [=, put = put_at(rows.origin), count = words * values_a_word_] {
                for (int value = 0; value < count; ++value) put(0, value, own(value));
              });
        if (rows.hops <= hop) continue;
        const int sender = rows.origin + hop * rows.direction, next = sender + rows.direction;
        const int receiver = core_at(axis, line, next);
        Message message{
            .words = words, .delay = beta_, .ramp = hop == 0 ? ramp_ : 0, .parents = parents[i], .due = current_};
        message.payload.values_a_word = values_a_word_;
        if (hop == 0) message.payload.own = own;
        message.payload.arrive = put_at(next);
        const int id = add_message(straight(core_at(axis, line, sender), receiver), std::move(message));
        step(current_ + 1).cores[at(receiver)].begin_received.push_back({id, 1});
        parents[i] = {id};
      }
  }
  close_step();
}

void EventMesh::clear(Tile tile) {
  step(current_).as_computed.emplace_back([=, this, in = values_->current(tile)](int core) {
    for_places(core, [&](int i, int j) {
      for (int e = 0; e < tile.rows * tile.columns; ++e) values_->element(tile, in, Axis::x, j, i, e) = 0;
    });
  });
}

void EventMesh::multiply_add(Tile a, Tile b, Tile c, Operand operand) {
  const bool transposed = operand == Operand::transposed;
  step(current_).as_computed.emplace_back(
      [=, this, in_a = values_->current(a), in_b = values_->current(b), in_c = values_->current(c)](int core) {
        for_places(core, [&](int i, int j) {
          for (int m = 0; m < c.rows; ++m)
            for (int n = 0; n < c.columns; ++n)
              for (int k = 0; k < a.columns; ++k)
                values_->element(c, in_c, Axis::x, j, i, m * c.columns + n) +=
                    values_->element(a, in_a, Axis::x, j, i, m * a.columns + k) *
                    values_->element(b, in_b, Axis::x, j, i, transposed ? n * b.columns + k : k * b.columns + n);
        });
      });
  const int columns = operand == Operand::as_is ? b.columns : b.rows;
  compute_ += grid_.tiles_a_core() * (a.columns * call_cycles_ + 1.0 * a.rows * a.columns * columns * mac_cycles_);
}

void EventMesh::multiply_vector(Tile x, Tile b, Tile y) {
  const double others = compute_;
  multiply_add(x, b, y, Operand::as_is);
  compute_ =
      others + grid_.tiles_a_core() * x.rows * (b.rows * vector_slice_cycles_ + 1.0 * b.rows * b.columns * mac_cycles_);
}

}  // namespace heddle::mesh
