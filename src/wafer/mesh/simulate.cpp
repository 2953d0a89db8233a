#include "wafer/mesh/simulate.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "wafer/mesh/gemv.h"
#include "wafer/mesh/max_plus_mesh.h"

namespace heddle::mesh {
namespace {

static_assert(Mesh<MaxPlusMesh>);

constexpr double kMostCoreSteps = 1e10;

struct AllReduceParts {
  double hops, stages, words;
};

void add_parts(WaferCost& cost, const AllReduceParts& parts) {
  cost.add("hops", parts.hops, Basis::simulated);
  cost.add("routing stages", parts.stages, Basis::simulated);
  cost.add("words", parts.words, Basis::simulated);
}

// The time that remains when hops, and optionally stages, cost nothing.
template <class Cycles>
AllReduceParts split(const PlmrDevice& device, Cycles cycles) {
  PlmrDevice without = device;
  const double all = cycles(without);
  without.beta_cycles.value = 0;
  const double hops_and_words = cycles(without);
  without.alpha_cycles.value = 0;
  const double words = cycles(without);
  return {.hops = hops_and_words - words, .stages = all - hops_and_words, .words = words};
}

// Where steps differ, every one is simulated, which takes seconds per 1e9 core-steps: limits their number.
void check_steps(const Grid& grid, WaferGemm method) {
  const double steps = 1.0 * grid.columns * grid.cores.width * grid.cores.height;
  if (steps <= kMostCoreSteps || (method != WaferGemm::gemm_t && method != WaferGemm::summa)) return;
  throw_error<InputError>(
      "{} x {} cores take {} steps, the least common multiple of the sides: {:.3g} core-steps to simulate, of {:.3g} "
      "at "
      "most; take sides that have more in common, or the closed form",
      grid.cores.width, grid.cores.height, grid.columns, steps, kMostCoreSteps);
}

}  // namespace

WaferCost simulate_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferGemm method,
                        WaferSync sync) {
  require(size.m > 0 && size.k > 0 && size.n > 0, "GEMM of {} x {} x {}", size.m, size.k, size.n);
  const Grid grid = Grid::square(cores, line_order(method));
  check_steps(grid, method);
  MaxPlusMesh mesh(device, grid, {.sync = sync});
  run_gemm(mesh, allocate_gemm(mesh, size, method), method);
  const WaferCost phases{.breakdown = mesh.breakdown()};
  const double compute = phases.cycles("compute"), alignment = phases.cycles("alignment");
  const double communication = std::max(0.0, mesh.cycles() - compute - alignment);
  WaferCost cost{
      .breakdown = {{"compute", compute, Basis::simulated}, {"communication", communication, Basis::simulated}},
      .memory_bytes = mesh.budget().memory_bytes(),
      .routes = mesh.budget().routes()};
  if (alignment > 0) cost.add("alignment", alignment, Basis::simulated);
  return cost;
}

WaferCost simulate_all_reduce(const PlmrDevice& device, int line, std::int64_t n, const AllReduceOptions& options) {
  require(n > 0 && n <= std::numeric_limits<int>::max(), "an all-reduce of {} values", n);
  WaferCost cost;
  const AllReduceParts parts = split(device, [&](const PlmrDevice& as) {
    MaxPlusMesh mesh(as, Grid::of_cores({3, line}));
    mesh.phase("all-reduce");
    const Tile sum = mesh.allocate("sum", 1, static_cast<int>(n), Buffers::two);
    mesh.all_reduce(sum, Axis::y, Reduction::sum, options);
    cost.memory_bytes = mesh.budget().memory_bytes();
    cost.routes = mesh.budget().routes();
    return mesh.cycles();
  });
  add_parts(cost, parts);
  return cost;
}

WaferCost simulate_gemv(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh cores,
                        const AllReduceOptions& options, int batch) {
  require(k > 0 && n > 0 && batch > 0, "{} GEMV of {} x {}", batch, k, n);
  WaferCost cost;
  double compute = 0;
  const AllReduceParts parts = split(device, [&](const PlmrDevice& as) {
    MaxPlusMesh mesh(as, Grid::of_cores(cores));
    mesh_gemv(mesh, allocate_gemv(mesh, k, n, Axis::y, batch), Axis::y, options);
    compute = WaferCost{.breakdown = mesh.breakdown()}.cycles("compute");
    cost.memory_bytes = mesh.budget().memory_bytes();
    cost.routes = mesh.budget().routes();
    return mesh.cycles();
  });
  cost.add("compute", compute, Basis::simulated);
  add_parts(cost, {.hops = parts.hops, .stages = parts.stages, .words = parts.words - compute});
  return cost;
}

WaferCost simulate_prefill_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh cores,
                                 std::int64_t tokens, WaferSync sync) {
  require(model.experts == 0, "a prefill layer with experts is not simulated");
  // The analytical model checks the model and counts the memory of a layer, which no single GEMM sees.
  WaferCost total = prefill_layer_cost(device, model, cores, tokens, sync);
  total.breakdown.clear();
  total.routes = 0;
  for (const LayerGemm& product : prefill_gemms(model, tokens)) {
    const WaferCost one = simulate_gemm(device, product.size, cores, product.method, sync);
    total.add(product.name, product.count * one.cycles(), Basis::simulated);
    total.routes = std::max(total.routes, one.routes);
  }
  return total;
}

}  // namespace heddle::mesh
