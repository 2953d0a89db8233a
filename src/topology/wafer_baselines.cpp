#include "topology/wafer_baselines.h"

#include <algorithm>

#include "base/error.h"
#include "topology/wafer_budgets.h"
#include "topology/wse2_fit.h"

namespace heddle {
namespace {

constexpr int kT10Routes = 4;     // relays along both axes
constexpr int kLadderRoutes = 8;  // questions and answers along both
constexpr int kStartRoutes = 1;   // of what starts a sum everywhere

double link_words(const PlmrDevice& device, double values) {
  return values * kValueBytes / device.link_bytes_per_cycle.value;
}

// A 32-bit value's, as an all-reduce's words are counted: a cycle on WSE.
double value_cycles(const PlmrDevice& device) {
  return 2 * kValueBytes / device.link_bytes_per_cycle.value;
}

std::int64_t pieces(std::int64_t size, std::int64_t cores) {
  return (size - 1) / cores + 1;
}

WaferCost product_cost(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferMethod method) {
  const BaselineTiles tiles = baseline_tiles(size, mesh);
  const BaselineConstants& constants = baseline_constants();
  const auto steps = static_cast<double>(tiles.steps);
  const double w = mesh.width, h = mesh.height, a = tiles.m * tiles.k, b = tiles.k * tiles.n, c = tiles.m * tiles.n;
  const double compute =
      steps * ((tiles.k + 2) * device.call_cycles.value + tiles.m * tiles.k * tiles.n * device.mac_cycles.value);
  const auto a_tiles = static_cast<double>(tiles.a_tiles), b_tiles = static_cast<double>(tiles.b_tiles);
  if (method == WaferMethod::t10)
    return {.breakdown = {{"compute", compute},
                          {"set-up", constants.t10_setup},
                          {"crossbar", steps * w * h * link_words(device, b) * constants.t10_word}},
            .memory_bytes = kValueBytes * ((a_tiles + 1) * a + (b_tiles + 1) * b + c),
            .routes = kT10Routes};
  const auto m = static_cast<double>(size.m), k = static_cast<double>(size.k), n = static_cast<double>(size.n);
  const double read_a = constants.ladder_access + value_cycles(device) * m / h * k / steps;
  const double read_b = constants.ladder_access + value_cycles(device) * k / steps * n / w;
  return {.breakdown = {{"compute", compute}, {"remote reads", steps * (w * read_a + h * read_b)}},
          .memory_bytes = kValueBytes * ((a_tiles + 1) * a + (b_tiles + 1) * b + 2 * c),
          .routes = kLadderRoutes};
}

double sum_cycles(int line, double n, WaferMethod method) {
  const BaselineConstants& constants = baseline_constants();
  if (method == WaferMethod::t10) return line * constants.t10_relay;
  return line * (constants.ladder_sum_access + constants.ladder_sum_value * n);
}

std::string_view sums_of(WaferMethod method) {
  return method == WaferMethod::t10 ? "relayed sums" : "remote reads";
}

int sum_routes(WaferMethod method, int axes) {
  return (method == WaferMethod::t10 ? kT10Routes : kLadderRoutes / 2) * axes + kStartRoutes;
}

double spread(const wse2_fit::Fitted& constant) {
  return std::max(constant.high / constant.value - 1, 1 - constant.low / constant.value);
}

}  // namespace

std::string_view ignored_properties(WaferMethod method) {
  switch (method) {
    case WaferMethod::waferllm:
      return "";
    case WaferMethod::t10:
      return "P L";
    case WaferMethod::ladder:
      return "P L M R";
  }
  throw_error<InvalidArgument>("no such method");
}

const BaselineConstants& baseline_constants() {
  static constexpr BaselineConstants constants{.t10_setup = wse2_fit::kT10GemmSetup.value,
                                               .t10_word = wse2_fit::kT10GemmCrossbar.value,
                                               .t10_relay = wse2_fit::kT10SumRelay.value,
                                               .ladder_access = wse2_fit::kLadderGemmAccess.value,
                                               .ladder_sum_access = wse2_fit::kLadderSumAccess.value,
                                               .ladder_sum_value = wse2_fit::kLadderSumValue.value};
  return constants;
}

BaselineErrors baseline_errors(WaferMethod method) {
  using namespace wse2_fit;
  if (method == WaferMethod::t10)
    return {.prefill = std::max(spread(kT10GemmSetup), spread(kT10GemmCrossbar)) + 2 * kT10Residuals.gemm,
            .decode = spread(kT10SumRelay) + 2 * kT10Residuals.sum,
            .end_to_end = 2 * kT10Residuals.end_to_end};
  require(method == WaferMethod::ladder, "no baseline");
  return {.prefill = spread(kLadderGemmAccess) + 2 * kLadderResiduals.gemm,
          .decode = std::max(spread(kLadderSumAccess), spread(kLadderSumValue)) + 2 * kLadderResiduals.sum,
          .end_to_end = 2 * kLadderResiduals.end_to_end};
}

BaselineTiles baseline_tiles(const GemmSize& size, WaferMesh mesh) {
  require(size.m > 0 && size.k > 0 && size.n > 0, "GEMM of {} x {} x {}", size.m, size.k, size.n);
  const std::int64_t steps = std::max(mesh.width, mesh.height);
  return {.steps = steps,
          .m = static_cast<double>(pieces(size.m, mesh.height)),
          .k = static_cast<double>(pieces(size.k, steps)),
          .n = static_cast<double>(pieces(size.n, mesh.width)),
          .a_tiles = pieces(steps, mesh.width),
          .b_tiles = pieces(steps, mesh.height)};
}

WaferCost gemm_cost(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferMethod method) {
  if (method == WaferMethod::waferllm) return gemm_cost(device, size, mesh, WaferGemm::mesh_gemm);
  check_wafer_mesh(device, mesh);
  WaferCost cost = product_cost(device, size, mesh, method);
  check_core_budgets(device, method == WaferMethod::t10 ? "T10-like GEMM" : "Ladder-like GEMM", mesh, cost,
                     [&](WaferMesh other) { return product_cost(device, size, other, method).memory_bytes; });
  return cost;
}

WaferCost gemv_cost(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh mesh, WaferMethod method) {
  if (method == WaferMethod::waferllm) return gemv_cost(device, k, n, mesh);
  const WaferCost own = gemv_cost(device, k, n, mesh, {.method = WaferAllReduce::pipeline});  // for fewest routes
  const auto nt = static_cast<double>(pieces(n, mesh.width));
  const auto memory_on = [&](WaferMesh m) {
    const double rows = static_cast<double>(pieces(k, m.height)), columns = static_cast<double>(pieces(n, m.width));
    const double placed = rows * columns + rows + 2 * columns;
    return kValueBytes * (method == WaferMethod::t10 ? placed : placed + rows * columns);  // a copy of what is read
  };
  WaferCost cost{.breakdown = {{"compute", own.cycles("compute")},
                               {std::string(sums_of(method)), sum_cycles(mesh.height, nt, method)}},
                 .memory_bytes = memory_on(mesh),
                 .routes = sum_routes(method, 1)};
  check_core_budgets(device, method == WaferMethod::t10 ? "T10-like GEMV" : "Ladder-like GEMV", mesh, cost, memory_on);
  return cost;
}

WaferCost prefill_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens,
                             WaferMethod method) {
  WaferCost cost = prefill_layer_cost(device, model, mesh, tokens);
  if (method == WaferMethod::waferllm) return cost;
  cost.breakdown.clear();
  cost.memory_bytes -= cost.buffer_bytes;
  cost.buffer_bytes = 0;
  cost.routes = 0;
  for (const LayerGemm& product : prefill_gemms(model, tokens)) {
    const WaferCost one = product_cost(device, product.size, mesh, method);
    for (std::size_t i = 0; i < one.breakdown.size(); ++i) {
      if (i == cost.breakdown.size()) cost.breakdown.push_back({one.breakdown[i].name, 0});
      cost.breakdown[i].cycles += product.count * one.breakdown[i].cycles;
    }
    cost.buffer_bytes = std::max(cost.buffer_bytes, one.memory_bytes);
    cost.routes = std::max(cost.routes, one.routes);
  }
  cost.memory_bytes += cost.buffer_bytes;
  return cost;
}

WaferCost decode_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t context,
                            WaferMethod method, const AllReduceOptions& options) {
  if (method == WaferMethod::waferllm) return decode_layer_cost(device, model, mesh, context, options);
  WaferCost cost = decode_layer_cost(device, model, mesh, context, {.method = WaferAllReduce::pipeline});
  double sums = 0;
  for (const LayerAllReduce& one : decode_all_reduces(model, mesh, context))
    sums += sum_cycles(one.line, one.n, method);
  for (WaferCost::Part& part : cost.breakdown)
    if (part.name == "all-reduce") part = {std::string(sums_of(method)), sums};
  cost.routes = sum_routes(method, 2);
  if (method == WaferMethod::ladder)  // a copy of the largest tile that is read
    cost.memory_bytes += kValueBytes * static_cast<double>(pieces(model.hidden, mesh.height)) *
                         static_cast<double>(pieces(model.intermediate, mesh.width));
  return cost;
}

}  // namespace heddle
