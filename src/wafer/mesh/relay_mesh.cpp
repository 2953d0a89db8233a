#include "wafer/mesh/relay_mesh.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "base/error.h"

namespace heddle::mesh {
namespace {

// The first word of a message reaches a core; or, at its end, the last one does.
struct WordArrival {
  double at;
  std::int64_t order;  // of equal times: as they were found
  std::size_t message;
  DeviceCore core;
  bool whole;

  bool operator>(const WordArrival& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
};

// When each link out of a core has delivered its words, in the rectangle that holds all ways: what follows on a link is
// delivered behind what went before.
class Links {
 public:
  explicit Links(std::span<const RelayMessage> messages) {
    int right = 0, bottom = 0;
    left_ = top_ = std::numeric_limits<int>::max();
    for (const RelayMessage& m : messages) {
      left_ = std::min({left_, m.from.x, m.to.x});
      top_ = std::min({top_, m.from.y, m.to.y});
      right = std::max({right, m.from.x, m.to.x});
      bottom = std::max({bottom, m.from.y, m.to.y});
    }
    if (messages.empty()) return;
    width_ = right - left_ + 1;
    links_.resize(4 * static_cast<std::size_t>(width_) * static_cast<std::size_t>(bottom - top_ + 1));
  }

  double& delivered(DeviceCore from, DeviceCore to) {
    const std::size_t direction = to.x > from.x ? 0 : to.x < from.x ? 1 : to.y > from.y ? 2 : 3;
    const auto core = static_cast<std::size_t>(from.y - top_) * static_cast<std::size_t>(width_) +
                      static_cast<std::size_t>(from.x - left_);
    return links_[4 * core + direction];
  }

 private:
  int left_ = 0, top_ = 0, width_ = 0;
  std::vector<double> links_;
};

DeviceCore next_on_the_way(DeviceCore at, DeviceCore to) {
  const auto towards = [](int from, int end) { return from + (end > from ? 1 : -1); };
  return at.x != to.x ? DeviceCore{towards(at.x, to.x), at.y} : DeviceCore{at.x, towards(at.y, to.y)};
}

}  // namespace

std::int64_t hops_of(std::span<const RelayMessage> messages) {
  std::int64_t hops = 0;
  for (const RelayMessage& m : messages) hops += std::abs(m.from.x - m.to.x) + std::abs(m.from.y - m.to.y);
  return hops;
}

double run_relays(const PlmrDevice& device, std::span<const RelayMessage> messages,
                  FunctionRef<void(std::size_t)> arrive) {
  const double alpha = device.alpha_cycles.value, beta = device.beta_cycles.value, ramp = device.ramp_cycles.value;
  Links links(messages);
  std::priority_queue<WordArrival, std::vector<WordArrival>, std::greater<>> queue;
  std::int64_t order = 0;
  for (std::size_t n = 0; n < messages.size(); ++n) {
    heddle::require(messages[n].bytes > 0, "message {} has no words", n);
    queue.push({0, order++, n, messages[n].from, false});
  }
  double end = 0;
  while (!queue.empty()) {
    const WordArrival now = queue.top();
    queue.pop();
    const RelayMessage& message = messages[now.message];
    const bool there = now.core.x == message.to.x && now.core.y == message.to.y;
    const bool moves = message.from.x != message.to.x || message.from.y != message.to.y;
    if (now.whole || !moves) {
      arrive(now.message);
      end = std::max(end, now.at);
      continue;
    }
    const double words = std::ceil(message.bytes / device.link_bytes_per_cycle.value);
    if (there) {
      queue.push({now.at + words, order++, now.message, now.core, true});
      continue;
    }
    const DeviceCore next = next_on_the_way(now.core, message.to);
    const bool first = now.core.x == message.from.x && now.core.y == message.from.y;
    double& delivered = links.delivered(now.core, next);
    const double arrives = std::max(delivered, now.at + beta + alpha + (first ? ramp : 0));
    delivered = arrives + words;
    queue.push({arrives, order++, now.message, next, false});
  }
  return end;
}

}  // namespace heddle::mesh
