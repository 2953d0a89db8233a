// The oracle's transfers between any two cores. event_mesh.cpp has the other operations.
#include <cmath>

#include "base/error.h"
#include "wafer/mesh/event_mesh.h"

namespace heddle::mesh {

void EventMesh::work(double cycles, const std::function<void(int core)>& values) {
  this->cycles();
  step(current_).as_computed.push_back(values);
  compute_ = cycles;
  this->cycles();
}

int EventMesh::relay(const std::vector<int>& path, int words, const Payload& payload, int request) {
  int last = -1;
  for (std::size_t k = 0; k + 1 < path.size(); ++k) {
    const bool first = k == 0, ends = k + 2 == path.size();
    Message message{.words = words, .delay = beta_, .ramp = first ? ramp_ : 0, .due = current_};
    if (first) message.request = request;
    if (!first) message.parents = {last};
    message.payload.values_a_word = payload.values_a_word;
    if (first) message.payload.own = payload.own;
    if (ends) message.payload.arrive = payload.arrive;
    if (last >= 0) messages_[static_cast<std::size_t>(last)].next = static_cast<int>(messages_.size());
    if (first && request >= 0) messages_[static_cast<std::size_t>(request)].next = static_cast<int>(messages_.size());
    last = add_message({path[k], path[k + 1]}, std::move(message));
  }
  return last;
}

void EventMesh::transfer(std::int64_t count, Access access, Arrival arrival,
                         const std::function<TileMove(std::int64_t)>& move) {
  cycles();
  for (const Axis axis : {Axis::x, Axis::y}) budget_.take_exchange(axis);
  const int width = grid_.cores.width;
  const auto path_of = [&](int from, int to) {  // along x, then along y
    std::vector<int> path = straight(from, from / width * width + to % width);
    const std::vector<int> rest = straight(path.back(), to);
    path.insert(path.end(), rest.begin() + 1, rest.end());
    return path;
  };
  for (std::int64_t n = 0; n < count; ++n) {
    const TileMove m = move(n);
    const Tile tile = m.source;
    require(tile.rows == m.into.rows && tile.columns == m.into.columns, "move {} changes the shape of a tile", n);
    const auto element = [=, values = values_.get()](Tile of, int core, int e) -> float& {
      return values->at(of, core / width, core % width, e / of.columns, e % of.columns);
    };
    const int elements = tile.rows * tile.columns;
    const auto own = [=](int e) { return e < elements ? element(m.source, m.from, e) : 0; };
    const auto put = [=](int, int e, float x) {
      if (e < elements) element(m.into, m.to, e) = (arrival == Arrival::add ? element(m.into, m.to, e) : 0) + x;
    };
    if (m.from == m.to) {
      step(current_).cores[static_cast<std::size_t>(m.to)].as_begun.emplace_back([=] {
        for (int e = 0; e < elements; ++e) put(0, e, own(e));
      });
      open_ = true;
      continue;
    }
    const int request = access == Access::load ? relay(path_of(m.to, m.from), 1, {}, -1) : -1;
    relay(path_of(m.from, m.to), static_cast<int>(std::ceil(kValueBytes * elements / link_bytes_)),
          {.values_a_word = values_a_word_, .own = own, .arrive = put}, request);
  }
  cycles();
}

}  // namespace heddle::mesh
