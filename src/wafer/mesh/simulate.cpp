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

// Of a program's cycles: those of hops, ramps and words, and which of them are words alone; and what its stages add to all
// else.
struct RunParts {
  double all, hops_and_words, words, stages;
};

// The time that remains when stages, then operations and calls, and at last hops cost nothing.
template <class Cycles>
RunParts split(const PlmrDevice& device, Cycles cycles) {
  PlmrDevice without = device;
  const double all = cycles(without);
  without.beta_cycles.value = 0;
  const double stages = all - cycles(without);
  without = without_fitted_costs(device);
  const double hops_and_words = cycles(without);
  without.alpha_cycles.value = 0;
  return {.all = all, .hops_and_words = hops_and_words, .words = cycles(without), .stages = stages};
}

// Of sums, behind which no compute hides.
void add_sum_parts(WaferCost& cost, const RunParts& parts) {
  cost.add("hops", parts.hops_and_words - parts.words, Basis::simulated);
  cost.add("routing stages", parts.stages);
  cost.add("words", parts.words, Basis::simulated);
}

// Relays and chains have stages; what shifts to neighbours has none.
bool uses_stages(WaferGemm method) {
  return method != WaferGemm::mesh_gemm && method != WaferGemm::cannon;
}

// Where steps differ, every one is simulated, which takes seconds per 1e9 core-steps: limits their number.
void check_steps(const Grid& grid, WaferGemm method) {
  const double steps = 1.0 * grid.columns * grid.cores.width * grid.cores.height;
  if (steps <= kMostCoreSteps || (method != WaferGemm::gemm_t && method != WaferGemm::summa)) return;
  throw_error<InputError>(
      "{} x {} cores take {} steps, the least common multiple of the sides: {:.3g} core-steps to simulate, of {:.3g} "
      "at "
      "most; take sides that have more in common, or the analytical model",
      grid.cores.width, grid.cores.height, grid.columns, steps, kMostCoreSteps);
}

// Returns the cycles; memory and routes go into `cost`.
double play_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferGemm method, WaferSync sync,
                 WaferCost& cost) {
  require(size.m > 0 && size.k > 0 && size.n > 0, "GEMM of {} x {} x {}", size.m, size.k, size.n);
  const Grid grid = Grid::square(cores, line_order(method));
  check_steps(grid, method);
  MaxPlusMesh mesh(device, grid, {.sync = sync});
  run_gemm(mesh, allocate_gemm(mesh, size, method), method);
  cost.memory_bytes = mesh.budget().memory_bytes();
  cost.routes = mesh.budget().routes();
  return mesh.cycles();
}

}  // namespace

WaferCost simulate_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferGemm method,
                        WaferSync sync) {
  WaferCost cost;
  const auto on = [&](const PlmrDevice& as) { return play_gemm(as, size, cores, method, sync, cost); };
  PlmrDevice without_stages = device;
  without_stages.beta_cycles.value = 0;
  const double all = on(device), stages = uses_stages(method) ? all - on(without_stages) : 0;
  const double hops_and_words = on(without_fitted_costs(device));
  cost.add("hops and words", hops_and_words, Basis::simulated);
  cost.add("operations and calls", std::max(0.0, all - stages - hops_and_words));
  if (stages > 0) cost.add("routing stages", stages);
  return cost;
}

double simulate_gemm_cycles(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferGemm method,
                            WaferSync sync) {
  WaferCost budgets;
  return play_gemm(device, size, cores, method, sync, budgets);
}

WaferCost simulate_all_reduce(const PlmrDevice& device, int line, std::int64_t n, const AllReduceOptions& options) {
  require(n > 0 && n <= std::numeric_limits<int>::max(), "an all-reduce of {} values", n);
  WaferCost cost;
  const RunParts parts = split(device, [&](const PlmrDevice& as) {
    MaxPlusMesh mesh(as, Grid::of_cores({3, line}));
    mesh.phase("all-reduce");
    const Tile sum = mesh.allocate("sum", 1, static_cast<int>(n), Buffers::two);
    mesh.all_reduce(sum, Axis::y, Reduction::sum, options);
    cost.memory_bytes = mesh.budget().memory_bytes();
    cost.routes = mesh.budget().routes();
    return mesh.cycles();
  });
  add_sum_parts(cost, parts);
  return cost;
}

WaferCost simulate_gemv(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh cores,
                        const AllReduceOptions& options, int batch) {
  require(k > 0 && n > 0 && batch > 0, "{} GEMV of {} x {}", batch, k, n);
  WaferCost cost;
  const RunParts parts = split(device, [&](const PlmrDevice& as) {
    MaxPlusMesh mesh(as, Grid::of_cores(cores));
    mesh_gemv(mesh, allocate_gemv(mesh, k, n, Axis::y, batch), Axis::y, options);
    cost.memory_bytes = mesh.budget().memory_bytes();
    cost.routes = mesh.budget().routes();
    return mesh.cycles();
  });
  cost.add("compute", parts.all - parts.stages - parts.hops_and_words);
  add_sum_parts(cost, parts);
  return cost;
}

double simulate_prefill_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                              WaferSync sync) {
  require(model.experts == 0, "a prefill layer with experts is not simulated");
  prefill_layer_cost(device, model, cores, tokens, sync);  // checks the model and a layer's memory, which no GEMM sees
  double cycles = 0;
  for (const LayerGemm& product : prefill_gemms(model, tokens))
    cycles += product.count * simulate_gemm_cycles(device, product.size, cores, product.method, sync);
  return cycles;
}

}  // namespace heddle::mesh
