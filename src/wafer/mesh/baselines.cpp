#include "wafer/mesh/baselines.h"

#include <algorithm>

#include "base/error.h"
#include "wafer/mesh/baseline_programs.h"
#include "wafer/mesh/event_mesh.h"
#include "wafer/mesh/gemm.h"
#include "wafer/mesh/load_mesh.h"

namespace heddle::mesh {
namespace {

bool is_t10(WaferMethod method) {
  require(method != WaferMethod::waferllm, "no baseline");
  return method == WaferMethod::t10;
}

// Returns the cycles of compute.
template <class M>
double run_gemm(M& mesh, const PlmrDevice& device, const GemmSize& size, WaferMethod method) {
  const BaselineShape shape = BaselineShape::of(size, mesh.grid().cores);
  const double product =
      (shape.k + 2) * device.call_cycles.value + 1.0 * shape.m * shape.k * shape.n * device.mac_cycles.value;
  if (is_t10(method))
    t10_gemm(mesh, allocate_t10_gemm(mesh, size), product);
  else
    ladder_gemm(mesh, allocate_ladder_gemm(mesh, size), product);
  return shape.steps * product;
}

template <class M>
double run_gemv(M& mesh, const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMethod method) {
  require(k > 0 && n > 0, "GEMV of {} x {}", k, n);
  const WaferMesh cores = mesh.grid().cores;
  const FlatSpace space = FlatSpace::of(cores);
  const int rows = tile_side(k, cores.height), columns = tile_side(n, cores.width);
  const double product = rows * (device.vector_slice_cycles.value + columns * device.mac_cycles.value);
  mesh.phase(is_t10(method) ? "T10-like GEMV" : "Ladder-like GEMV");
  const auto vector = [&](const char* name, int values) { return mesh.allocate(name, 1, values, Buffers::one); };
  const Tile b_home = mesh.allocate("B where it lives", rows, columns, Buffers::one), x = vector("x", rows);
  if (is_t10(method)) {
    const Tile y = vector("y", columns), total = vector("sum", columns);
    multiply_tiles(mesh, product, cores.width, [&](int) { return CoreGemm{x, b_home, y}; });
    t10_sum(mesh, space, y, total);
    return product;
  }
  const LadderGemv operands{.x_home = vector("x where it lives", rows),
                            .b_home = b_home,
                            .x = x,
                            .b = mesh.allocate("B's copy", rows, columns, Buffers::one)};
  const LadderSum sum{.part = vector("y's part", columns),
                      .part_home = vector("the part where it lives", columns),
                      .total = vector("y", columns),
                      .total_home = vector("y where it lives", columns)};
  ladder_load_operands(mesh, space, operands);
  multiply_tiles(mesh, product, cores.width, [&](int) { return CoreGemm{x, operands.b, sum.part}; });
  ladder_sum(mesh, space, sum);
  return product;
}

struct Transfers {
  double cycles, hops_and_words;
};

WaferCost cost_of(const CoreBudget& budget, double compute, const Transfers& transfers, WaferMethod method,
                  Basis basis) {
  WaferCost cost{.breakdown = {}, .memory_bytes = budget.memory_bytes(), .routes = budget.routes()};
  cost.add("compute", compute);
  cost.add_run(is_t10(method) ? "exchange" : "remote reads and writes", transfers.cycles, transfers.hops_and_words,
               basis);
  return cost;
}

// Program: returns the cycles of compute of a mesh that it runs on, with the device's costs.
template <class Program>
WaferCost simulate(const PlmrDevice& device, WaferMesh cores, WaferMethod method, Program&& program) {
  EventMesh mesh(device, Grid::of_cores(cores));
  const double compute = program(mesh, device), transfers = static_cast<double>(mesh.cycles()) - compute;
  const PlmrDevice bare = without_fitted_costs(device);
  EventMesh without(bare, Grid::of_cores(cores));
  program(without, bare);
  return cost_of(mesh.budget(), compute, {transfers, static_cast<double>(without.cycles())}, method, Basis::simulated);
}

template <class Program>
WaferCost count(const PlmrDevice& device, WaferMesh cores, WaferMethod method, int steps, Program&& program) {
  LoadMesh mesh(device, cores, steps);
  program(mesh);
  WaferCost cost = cost_of(mesh.budget(), mesh.compute_cycles(), {mesh.transfer_cycles(), mesh.hops_and_words()},
                           method, Basis::counted);
  cost.at_least = mesh.compute_cycles() + mesh.least_transfer_cycles();
  return cost;
}

bool is_small(WaferMesh cores) {
  return std::max(cores.width, cores.height) <= kEventSide;
}

}  // namespace

std::optional<CountedSteps> counted_gemm_steps(WaferMesh cores, WaferMethod method) {
  if (is_small(cores)) return std::nullopt;
  const int all = std::max(cores.width, cores.height);
  return CountedSteps{.counted = is_t10(method) ? 1 : std::min(all, kCountedSteps), .all = all};
}

WaferCost count_baseline_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferMethod method,
                              int counted_steps) {
  return count(device, cores, method, is_t10(method) ? 1 : counted_steps,  // T10's steps are alike
               [&](LoadMesh& mesh) { return run_gemm(mesh, device, size, method); });
}

WaferCost count_baseline_gemv(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh cores,
                              WaferMethod method) {
  return count(device, cores, method, 1, [&](LoadMesh& mesh) { return run_gemv(mesh, device, k, n, method); });
}

WaferCost simulate_baseline_gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh cores, WaferMethod method) {
  if (!is_small(cores)) return count_baseline_gemm(device, size, cores, method);
  return simulate(device, cores, method,
                  [&](EventMesh& mesh, const PlmrDevice& as) { return run_gemm(mesh, as, size, method); });
}

WaferCost simulate_baseline_gemv(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh cores,
                                 WaferMethod method) {
  if (!is_small(cores)) return count_baseline_gemv(device, k, n, cores, method);
  return simulate(device, cores, method,
                  [&](EventMesh& mesh, const PlmrDevice& as) { return run_gemv(mesh, as, k, n, method); });
}

WaferCost count_baseline_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                               WaferPhase phase, WaferMethod method) {
  require(model.experts == 0 && cores.width == cores.height, "a baseline's layer with experts, or on no square");
  WaferCost layer;
  if (phase == WaferPhase::prefill) {
    for (const LayerGemm& product : prefill_gemms(model, tokens))
      for (const auto& [name, cycles, basis] : count_baseline_gemm(device, product.size, cores, method).breakdown)
        layer.add(name, product.count * cycles, basis);
    return layer;
  }
  for (const auto& [name, cycles, basis] : decode_layer_cost(device, model, cores, tokens).breakdown)
    if (name != "all-reduce") layer.add(name, cycles, basis);
  const std::int64_t d = model.hidden, f = model.intermediate, q = std::int64_t{model.num_heads} * model.head_dim;
  struct Gemv {
    int count;
    std::int64_t k, n;
  };
  // Q, K, V and O; scores; values; gate and up; down; the sums of two norms and of softmax.
  for (const Gemv& gemv : {Gemv{3, d, q},
                           {1, q, d},
                           {1, q, tokens},
                           {1, tokens, q},
                           {2, d, f},
                           {1, f, d},
                           {4, cores.height, cores.width}}) {
    for (const auto& [name, cycles, basis] : count_baseline_gemv(device, gemv.k, gemv.n, cores, method).breakdown)
      if (name != "compute") layer.add(name, gemv.count * cycles, basis);
  }
  return layer;
}

std::vector<ComplianceRow> baseline_compliance(const PlmrDevice& device, int line) {
  PlmrDevice roomy = device;
  roomy.mesh_width.value = roomy.mesh_height.value = std::max(1.0 * line, device.mesh_width.value);
  roomy.sram_bytes.value = roomy.free_routes.value = 1e15;
  std::vector<ComplianceRow> rows;
  for (const auto& [method, name] :
       {std::pair{WaferMethod::t10, "T10-like GEMM"}, {WaferMethod::ladder, "Ladder-like GEMM"}}) {
    const auto on_line = [&, &method = method, &name = name](int side) {
      LoadMesh mesh(roomy, {side, side}, 1);
      run_gemm(mesh, roomy, {side, side, side}, method);
      return ComplianceRow{.program = name,
                           .paths = mesh.most_paths(),
                           .routes = mesh.budget().routes(),
                           .hops = static_cast<double>(mesh.most_hops()),
                           .stages = static_cast<double>(mesh.most_hops()),
                           .memory_tiles = mesh.budget().memory_bytes() / kValueBytes};
    };
    ComplianceRow row = on_line(line);
    const ComplianceRow half = on_line(line / 2);
    row.complies = letters_of(half.hops == row.hops && half.stages == row.stages, half.memory_tiles == row.memory_tiles,
                              row.paths <= device.free_routes.value);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace heddle::mesh
