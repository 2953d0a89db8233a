#include "wafer/mesh/line_time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/make_schedule.h"
#include "schedule/two_hop.h"

namespace heddle::mesh {
namespace {

struct LineCosts {
  double alpha, beta, ramp, value_cycles;  // value_cycles: to pass on a value and add to it
  double waits;                            // extra waiting of a stage, as a fraction of the time of its path

  LineCosts(const PlmrDevice& device, WaferSync sync)
      : alpha(device.alpha_cycles.value),
        beta(device.beta_cycles.value),
        ramp(device.ramp_cycles.value),
        value_cycles(2 * kValueBytes / device.link_bytes_per_cycle.value),
        waits(sync == WaferSync::dataflow     ? 0
              : sync == WaferSync::rendezvous ? 0.5
                                              : 1) {}

  double stage(int hops) const { return beta + hops * alpha + waits * (hops * alpha + ramp); }
};

std::size_t index(int core) {
  return static_cast<std::size_t>(core);
}

void k_tree(const LineCosts& cost, std::span<double> clocks, double values, int phases) {
  const auto tree = make_schedule<schedule::KTree>(static_cast<int>(clocks.size()), phases);
  for (int phase = 0; phase < phases; ++phase)
    for (int group = 0; group < tree.groups(phase); ++group) {
      const int first = group * tree.fan, last = first + tree.group_size(phase, group) - 1;
      const int root = tree.root_member(phase, group);
      const auto pass_on = [&](int from, int to) {
        const int sender = tree.core(phase, from), receiver = tree.core(phase, to);
        const double arrival = clocks[index(sender)] + cost.stage(schedule::distance(sender, receiver));
        clocks[index(receiver)] = std::max(clocks[index(receiver)], arrival);
      };
      for (int member = first; member < root; ++member) pass_on(member, member + 1);
      for (int member = last; member > root; --member) pass_on(member, member - 1);
    }
  const double whole = clocks[index(tree.root())] + values * cost.value_cycles;
  for (int core = 0; core < tree.size; ++core)
    clocks[index(core)] = std::max(clocks[index(core)], whole + values * cost.value_cycles / 2 +
                                                            schedule::distance(core, tree.root()) * cost.alpha);
}

// To core 0 and back, word by word.
void pipeline(const LineCosts& cost, std::span<double> clocks, double values) {
  for (std::size_t core = clocks.size() - 1; core > 0; --core)
    clocks[core - 1] = std::max(clocks[core - 1], clocks[core] + cost.stage(1));
  const double whole = clocks[0] + values * cost.value_cycles;
  for (std::size_t core = 0; core < clocks.size(); ++core)
    clocks[core] = std::max(clocks[core], whole + static_cast<double>(core) * cost.alpha);
}

void ring(const LineCosts& cost, std::span<double> clocks, double values) {
  const auto order = make_schedule<schedule::TwoHop>(static_cast<int>(clocks.size()));
  const double chunk = std::ceil(values * cost.value_cycles / 2 / order.size);
  std::vector<double> next(clocks.size());
  for (int step = 0; step < 2 * order.steps(); ++step) {
    for (int core = 0; core < order.size; ++core) {
      const int from = order.receive_index(core);
      const double way = cost.stage(schedule::distance(from, core)) + chunk;
      next[index(core)] = std::max(clocks[index(core)], clocks[index(from)] + way);
    }
    std::ranges::copy(next, clocks.begin());
  }
}

}  // namespace

std::vector<double> shift_latencies(const PlmrDevice& device, const Grid& grid, Axis axis, double words, int steps,
                                    WaferSync sync) {
  const int cores = grid.cores_along(axis);
  std::vector<double> weight(index(cores)), arrival(index(cores)), clock(index(cores)), next(index(cores));
  for (int p = 0; p < cores; ++p)
    weight[index(p)] = words + grid.hops(axis, p) * device.alpha_cycles.value + device.ramp_cycles.value;
  std::vector<double> latest{0};
  for (int step = 0; step < steps; ++step) {
    for (int p = 0; p < cores; ++p) {
      double start = clock[index(p + 1 < cores ? p + 1 : 0)];
      if (sync == WaferSync::rendezvous) start = std::max(start, arrival[index(p > 0 ? p - 1 : cores - 1)]);
      next[index(p)] = start + weight[index(p)];
    }
    arrival = next;
    clock = next;
    latest.push_back(*std::ranges::max_element(clock));
    if (sync == WaferSync::barrier) std::ranges::fill(clock, latest.back());
  }
  return latest;
}

double exchange_latency(const PlmrDevice& device, const Grid& grid, Axis axis, double words,
                        std::span<const RowMove> moves) {
  const int cores = grid.cores_along(axis);
  std::vector<double> upwards(index(cores)),
      downwards(index(cores));  // words over the link from core k to its neighbour
  struct Ways {
    int core, lowest, highest;  // of the receivers
  };
  std::map<std::pair<int, int>, Ways> rows;  // by place and row: the farthest receivers
  for (const RowMove& m : moves) {
    const int from = grid.ring_core(axis, grid.ring_position(axis, m.from_place));
    const int to = grid.ring_core(axis, grid.ring_position(axis, m.to_place));
    Ways& ways = rows.try_emplace({m.from_place, m.from_row}, Ways{from, from, from}).first->second;
    ways.lowest = std::min(ways.lowest, to);
    ways.highest = std::max(ways.highest, to);
  }
  for (const auto& [row, ways] : rows) {
    for (int k = ways.core; k < ways.highest; ++k) upwards[index(k)] += words;
    for (int k = ways.core; k > ways.lowest; --k) downwards[index(k)] += words;
  }
  const double stage = device.alpha_cycles.value + device.beta_cycles.value;
  double latest = 0;
  for (std::vector<double>* loads : {&upwards, &downwards}) {
    if (loads == &downwards) std::ranges::reverse(*loads);
    double end = 0;  // of the previous link
    for (const double load : *loads) {
      end = load > 0 ? std::max(end + stage, load + stage) : 0;
      latest = std::max(latest, end);
    }
  }
  return latest + (latest > 0 ? device.ramp_cycles.value : 0);
}

void all_reduce(const PlmrDevice& device, std::span<double> clocks, double values, const AllReduceOptions& options) {
  const LineCosts cost(device, options.sync);
  switch (options.method) {
    case WaferAllReduce::k_tree:
      require(options.phases >= 1 && options.phases <= 32, "a K-tree of {} phases", options.phases);
      return k_tree(cost, clocks, values, options.phases);
    case WaferAllReduce::pipeline:
      return pipeline(cost, clocks, values);
    case WaferAllReduce::ring:
      return ring(cost, clocks, values);
  }
  throw_error<InvalidArgument>("no such all-reduce");
}

}  // namespace heddle::mesh
