#include "fabric/mesh/simulate.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "fabric/mesh/gemv.h"
#include "fabric/mesh/max_plus_mesh.h"

namespace heddle::mesh {
namespace {

static_assert(Mesh<MaxPlusMesh>);

struct AllReduceParts {
  double hops, stages, words;
};

// What is left when hops, and stages too, cost nothing.
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

}  // namespace

WaferCost simulate_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferGemm method,
                        WaferSync sync) {
  require(size.m > 0 && size.k > 0 && size.n > 0, "GEMM of {} x {} x {}", size.m, size.k, size.n);
  MaxPlusMesh mesh(device, Grid::square(cores, line_order(method)), {.sync = sync});
  run_gemm(mesh, allocate_gemm(mesh, size, method), method);
  const WaferCost phases{.breakdown = mesh.breakdown()};
  const double compute = phases.cycles("compute"), alignment = phases.cycles("alignment");
  WaferCost cost{
      .breakdown = {{"compute", compute}, {"communication", std::max(0.0, mesh.cycles() - compute - alignment)}},
      .memory_bytes = mesh.budget().memory_bytes(),
      .routes = mesh.budget().routes()};
  if (alignment > 0) cost.breakdown.push_back({"alignment", alignment});
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
  cost.breakdown = {{"hops", parts.hops}, {"routing stages", parts.stages}, {"words", parts.words}};
  return cost;
}

WaferCost simulate_gemv(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh cores,
                        const AllReduceOptions& options) {
  require(k > 0 && n > 0, "GEMV of {} x {}", k, n);
  WaferCost cost;
  double compute = 0;
  const AllReduceParts parts = split(device, [&](const PlmrDevice& as) {
    MaxPlusMesh mesh(as, Grid::of_cores(cores));
    mesh_gemv(mesh, allocate_gemv(mesh, k, n), Axis::y, options);
    compute = WaferCost{.breakdown = mesh.breakdown()}.cycles("compute");
    cost.memory_bytes = mesh.budget().memory_bytes();
    cost.routes = mesh.budget().routes();
    return mesh.cycles();
  });
  cost.breakdown = {
      {"compute", compute}, {"hops", parts.hops}, {"routing stages", parts.stages}, {"words", parts.words - compute}};
  return cost;
}

WaferCost simulate_prefill_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh cores,
                                 std::int64_t tokens, WaferSync sync) {
  // The closed form checks the model and counts a layer's memory, which no single GEMM sees.
  WaferCost total = prefill_layer_cost(device, model, cores, tokens, sync);
  total.breakdown.clear();
  total.routes = 0;
  for (const LayerGemm& product : prefill_gemms(model, tokens)) {
    const WaferCost one = simulate_gemm(device, product.size, cores, product.method, sync);
    total.breakdown.push_back({product.name, product.count * one.cycles()});
    total.routes = std::max(total.routes, one.routes);
  }
  return total;
}

}  // namespace heddle::mesh
