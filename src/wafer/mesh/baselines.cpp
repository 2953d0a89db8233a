#include "wafer/mesh/baselines.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "wafer/mesh/core_budget.h"

namespace heddle::mesh {
namespace {

// The clocks of all cores. A phase begins at the same time on all cores and ends when the last core is done.
class PhasedClocks {
 public:
  explicit PhasedClocks(WaferMesh cores)
      : cores_(cores), clocks_(static_cast<std::size_t>(cores.width) * static_cast<std::size_t>(cores.height)) {}

  // `serve(x, y, clock)` advances a core's clock from the beginning of the phase to the core's own end.
  template <class Serve>
  double phase(const Serve& serve) {
    const double begin = now_;
    for (int y = 0; y < cores_.height; ++y)
      for (int x = 0; x < cores_.width; ++x) {
        double& clock =
            clocks_[static_cast<std::size_t>(y) * static_cast<std::size_t>(cores_.width) + static_cast<std::size_t>(x)];
        clock = begin;
        serve(x, y, clock);
        now_ = std::max(now_, clock);
      }
    return now_ - begin;
  }

 private:
  WaferMesh cores_;
  std::vector<double> clocks_;
  double now_ = 0;
};

// For each core of a line, its port, which decides when it is served: the inverse of crossbar_place.
std::vector<int> ports_of(int cores) {
  std::vector<int> ports(static_cast<std::size_t>(cores));
  for (int port = 0; port < cores; ++port) ports.at(static_cast<std::size_t>(crossbar_place(cores, port))) = port;
  return ports;
}

struct Ways {
  int paths = 0, hops = 0;
};

// The paths of one line, one from each core to its partner: the longest, and how many begin, end or pass at the busiest
// core.
template <class PartnerOf>
Ways ways_of(int cores, const PartnerOf& partner_of) {
  Ways ways;
  std::vector<int> change(static_cast<std::size_t>(std::max(cores, 0)) + 2);
  for (int core = 0; core < cores; ++core) {
    const int partner = partner_of(core);
    if (partner == core) continue;
    ways.hops = std::max(ways.hops, std::abs(partner - core));
    change.at(static_cast<std::size_t>(std::min(core, partner))) += 1;
    change.at(static_cast<std::size_t>(std::max(core, partner)) + 1) -= 1;
  }
  int open = 0;
  for (const int more : change) ways.paths = std::max(ways.paths, open += more);
  return ways;
}

Ways t10_ways(int cores) {
  const std::vector<int> ports = ports_of(cores);
  return ways_of(cores,
                 [&](int core) { return crossbar_place(cores, (ports[static_cast<std::size_t>(core)] + 1) % cores); });
}

// All cores read from the owner of the step's piece; the worst owner is at an end of the line.
Ways ladder_ways(int cores) {
  return ways_of(cores, [](int) { return 0; });
}

void require_baseline(WaferMethod method) {
  require(method != WaferMethod::waferllm, "no baseline");
}

}  // namespace

// Ports are numbered with a stride, the number nearest to 0.618 n that is coprime with n: on a crossbar all cores are
// equally near, so any order is as good.
int crossbar_place(int cores, int port) {
  require(cores > 0 && port >= 0 && port < cores, "port {} of {}", port, cores);
  int stride = std::max(1, static_cast<int>(std::lround(0.618 * cores)));
  while (std::gcd(stride, cores) != 1) ++stride;
  return static_cast<int>(std::int64_t{port} * stride % cores);
}

WaferCost simulate_baseline_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferMethod method) {
  require_baseline(method);
  CoreBudget budget(device, Grid::of_cores(cores));
  const BaselineTiles tiles = baseline_tiles(size, cores);
  const double a = tiles.m * tiles.k, b = tiles.k * tiles.n, c = tiles.m * tiles.n;
  const bool is_t10 = method == WaferMethod::t10;
  budget.phase(is_t10 ? "T10-like GEMM" : "Ladder-like GEMM");
  const auto hold = [&](const char* what, double values) { budget.hold(what, kValueBytes * values); };
  hold("A where it lives", static_cast<double>(tiles.a_tiles) * a);
  hold("B where it lives", static_cast<double>(tiles.b_tiles) * b);
  hold("C", c);
  hold(is_t10 ? "A on its way" : "A's copy", a);
  hold(is_t10 ? "B on its way" : "B's copy", b);
  if (!is_t10) hold("C's copy", c);
  for (const Axis axis : {Axis::x, Axis::y}) is_t10 ? budget.take_relay(axis) : budget.take_exchange(axis);

  const double product =
      (tiles.k + 2) * device.call_cycles.value + tiles.m * tiles.k * tiles.n * device.mac_cycles.value;
  // All clocks are equal at the beginning of a step, and all steps are alike: simulate one and multiply.
  const auto steps = static_cast<double>(tiles.steps);
  PhasedClocks clocks(cores);
  const double compute = clocks.phase([&](int, int, double& clock) { clock += product; });
  WaferCost cost{
      .breakdown = {{"compute", steps * compute}}, .memory_bytes = budget.memory_bytes(), .routes = budget.routes()};
  if (is_t10) {
    const double message = t10_message_cycles(device, size, cores);
    const std::vector<int> along_x = ports_of(cores.width), along_y = ports_of(cores.height);
    const double exchange = clocks.phase([&](int x, int y, double& clock) {
      const double before =
          along_y[static_cast<std::size_t>(y)] * 1.0 * cores.width + along_x[static_cast<std::size_t>(x)];
      clock += (before + 1) * message;
    });
    cost.breakdown.push_back({"crossbar", steps * exchange});
    return cost;
  }
  const LadderReads read = ladder_reads(device, size, cores);
  const double reads = clocks.phase([&](int x, int, double& clock) { clock += (x + 1) * read.a; }) +
                       clocks.phase([&](int, int y, double& clock) { clock += (y + 1) * read.b; });
  cost.breakdown.push_back({"remote reads", steps * reads});
  return cost;
}

WaferCost simulate_baseline_gemv(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh cores,
                                 WaferMethod method) {
  require_baseline(method);
  require(k > 0 && n > 0, "GEMV of {} x {}", k, n);
  CoreBudget budget(device, Grid::of_cores(cores));
  const std::int64_t kt = (k - 1) / cores.height + 1, nt = (n - 1) / cores.width + 1;
  const auto rows = static_cast<double>(kt), columns = static_cast<double>(nt);
  const bool is_t10 = method == WaferMethod::t10;
  budget.phase(is_t10 ? "T10-like GEMV" : "Ladder-like GEMV");
  const auto hold = [&](const char* what, double values) { budget.hold(what, kValueBytes * values); };
  hold("B where it lives", rows * columns);
  hold("x", rows);
  hold("y", 2 * columns);
  if (!is_t10) hold("B's copy", rows * columns);
  budget.take_all_reduce(Axis::y, {.method = WaferAllReduce::pipeline});  // to the root and back; requests, replies

  PhasedClocks clocks(cores);
  const double compute = clocks.phase([&](int, int, double& clock) {
    clock += rows * (device.vector_slice_cycles.value + columns * device.mac_cycles.value);
  });
  // t10 hands a sum from port to port and back; in ladder, cores read partial sums and weights one after the other.
  const double each = baseline_gemv_turn(device, k, n, cores, method);
  const double sums = clocks.phase([&](int, int y, double& clock) { clock += (y + 1) * each; });
  return {.breakdown = {{"compute", compute}, {is_t10 ? "relayed sums" : "remote reads", sums}},
          .memory_bytes = budget.memory_bytes(),
          .routes = budget.routes()};
}

std::vector<ComplianceRow> baseline_compliance(const PlmrDevice& device, int line) {
  PlmrDevice roomy = device;
  roomy.mesh_width.value = roomy.mesh_height.value = std::max(1.0 * line, device.mesh_width.value);
  std::vector<ComplianceRow> rows;
  for (const auto& [method, name] :
       {std::pair{WaferMethod::t10, "T10-like GEMM"}, {WaferMethod::ladder, "Ladder-like GEMM"}}) {
    const WaferCost cost = simulate_baseline_gemm(roomy, {line, line, line}, {line, line}, method);
    const Ways ways = method == WaferMethod::t10 ? t10_ways(line) : ladder_ways(line);
    rows.push_back({.program = name,
                    .paths = ways.paths,
                    .routes = cost.routes,
                    .hops = static_cast<double>(ways.hops),
                    .stages = static_cast<double>(ways.hops),  // relayed, since there are fewer routes than paths
                    .memory_tiles = cost.memory_bytes / kValueBytes,
                    .complies = method == WaferMethod::t10 ? "M R" : ""});
  }
  return rows;
}

}  // namespace heddle::mesh
