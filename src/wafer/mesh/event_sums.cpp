// The oracle's all-reduces as messages. event_mesh.cpp has the other operations.
#include <algorithm>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/make_schedule.h"
#include "schedule/two_hop.h"
#include "wafer/mesh/event_mesh.h"

namespace heddle::mesh {
namespace {

std::size_t number(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

void EventMesh::all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options) {
  close_step();
  require(options.sync == WaferSync::dataflow, "an all-reduce is played in dataflow");
  budget_.take_all_reduce(axis, options);
  const int width = grid_.tiles_along(across(axis)), tiles = grid_.tiles_along(axis),
            elements = tile.rows * tile.columns;
  for (int line = 0; line < grid_.cores_along(across(axis)); ++line) {
    const int first_across = position_of(across(axis), line) * width;
    const ReducedLine reduced{
        .axis = axis,
        .line = line,
        .values = elements * width,
        .own =
            [=, this, in = values_->current(tile)](int core, int value) {
              const int first = position_of(axis, core) * tiles;
              const auto at_place = [&](int k) {
                return values_->element(tile, in, axis, first + k, first_across + value / elements, value % elements);
              };
              float all = at_place(0);
              for (int k = 1; k < tiles; ++k)
                all = reduction == Reduction::sum ? all + at_place(k) : std::max(all, at_place(k));
              return all;
            },
        .write =
            [=, this, in = values_->current(tile)](int core, int value, float x) {
              for (int k = 0; k < tiles; ++k)
                values_->other_element(tile, in, axis, position_of(axis, core) * tiles + k,
                                       first_across + value / elements, value % elements) = x;
            },
        .reduction = reduction};
    switch (options.method) {
      case WaferAllReduce::k_tree:
        k_tree(reduced, options.phases);
        break;
      case WaferAllReduce::pipeline:
        pipeline(reduced);
        break;
      case WaferAllReduce::ring:
        ring(reduced);
        break;
    }
  }
  values_->turn(tile);
  close_step();
}

Payload EventMesh::summand(const ReducedLine& line, int core, int values_a_word) const {
  return {.values_a_word = values_a_word, .reduction = line.reduction, .own = [=](int value) {
            return value < line.values ? line.own(core, value) : 0;
          }};
}

Payload EventMesh::result(const ReducedLine& line, int core, int values_a_word) const {
  Payload payload = summand(line, core, values_a_word);
  payload.sent = [=](int value, float x) {
    if (value < line.values) line.write(core, value, x);
  };
  return payload;
}

void EventMesh::k_tree(const ReducedLine& line, int phases) {
  const auto tree = make_schedule<schedule::KTree>(grid_.cores_along(line.axis), phases);
  std::vector<std::vector<int>> arriving(number(tree.size));  // at each core
  const auto pass_on = [&](int from, int to) {
    Message message{.words = line.values, .delay = beta_, .parents = arriving[number(from)], .due = current_};
    message.payload = summand(line, from);
    const int id = add_message(straight(core_at(line.axis, line.line, from), core_at(line.axis, line.line, to)),
                               std::move(message));
    arriving[number(to)].push_back(id);
  };
  for (int phase = 0; phase < phases; ++phase)
    for (int group = 0; group < tree.groups(phase); ++group) {
      const int first = group * tree.fan, last = first + tree.group_size(phase, group) - 1;
      const int root = tree.root_member(phase, group);
      for (int member = first; member < root; ++member) pass_on(tree.core(phase, member), tree.core(phase, member + 1));
      for (int member = last; member > root; --member) pass_on(tree.core(phase, member), tree.core(phase, member - 1));
    }
  Message message{.words = (line.values + 1) / 2,
                  .parents = arriving[number(tree.root())],
                  .follows = Follows::whole,
                  .due = current_};
  message.payload = result(line, tree.root(), 2);
  send_to_all(line, tree.root(), message);
}

void EventMesh::pipeline(const ReducedLine& line) {
  std::vector<int> parents;
  for (int k = grid_.cores_along(line.axis) - 1; k > 0; --k) {
    Message message{.words = line.values, .delay = beta_, .parents = parents, .due = current_};
    message.payload = summand(line, k);
    parents = {add_message(straight(core_at(line.axis, line.line, k), core_at(line.axis, line.line, k - 1)),
                           std::move(message))};
  }
  Message message{.words = line.values, .parents = parents, .due = current_};
  message.payload = result(line, 0, 1);
  send_to_all(line, 0, message);
}

void EventMesh::send_to_all(const ReducedLine& line, int root, const Message& message) {
  for (const int id : multicast(line.axis, line.line, root, message)) {
    std::vector<int> cores;
    for (const int core : channels_[number(messages_[number(id)].channel)].path)
      cores.push_back(along(line.axis, core));
    messages_[number(id)].payload.arrive = [=](int k, int value, float x) {
      if (value < line.values) line.write(cores[number(k)], value, x);
    };
    await_multicast(id);
  }
}

// One chunk per core. The first size - 1 steps add chunks up around the ring; the others distribute the results.
void EventMesh::ring(const ReducedLine& line) {
  const auto order = make_schedule<schedule::TwoHop>(grid_.cores_along(line.axis));
  const int words = (line.values + 2 * order.size - 1) / (2 * order.size), chunk_values = 2 * words;
  std::vector<int> before(number(order.size), -1);  // the message that each core received in the step before
  for (int i = 0; i < 2 * order.steps(); ++i) {
    std::vector<int> now(number(order.size));
    for (int core = 0; core < order.size; ++core) {
      const int to = order.send_index(core), handed = i - order.steps();
      const int chunk = (order.position(core) + 2 * order.size - (handed < 0 ? i : handed - 1)) % order.size;
      Message message{.words = words, .delay = beta_, .follows = Follows::whole, .due = current_};
      if (before[number(core)] >= 0) message.parents = {before[number(core)]};
      ReducedLine part = line;
      part.values = std::clamp(line.values - chunk * chunk_values, 0, chunk_values);
      part.own = [=, own = line.own](int of, int value) { return own(of, chunk * chunk_values + value); };
      part.write = [=, write = line.write](int of, int value, float x) { write(of, chunk * chunk_values + value, x); };
      if (handed < 0) message.payload = summand(part, core, 2);
      if (handed == 0) message.payload = result(part, core, 2);
      message.payload.values_a_word = 2;
      message.payload.reduction = line.reduction;
      if (handed >= 0)
        message.payload.arrive = [=](int, int value, float x) {
          if (value < part.values) part.write(to, value, x);
        };
      now[number(to)] = add_message(straight(core_at(line.axis, line.line, core), core_at(line.axis, line.line, to)),
                                    std::move(message));
      step(current_ + 1)
          .cores[number(core_at(line.axis, line.line, to))]
          .begin_received.push_back({now[number(to)], messages_.back().taken.size() - 1});
    }
    before = std::move(now);
  }
}

}  // namespace heddle::mesh
