#include "wafer/cost/wafer_baselines.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "wafer/cost/wafer_budgets.h"
#include "wafer/cost/wse2_fit.h"

namespace heddle {
namespace {

constexpr int kT10Routes = 8;     // relays in both directions along both axes
constexpr int kLadderRoutes = 8;  // requests and replies along both axes

// Cycles of a 16-bit value on a link, relative to WSE-2.
double link_scale(const PlmrDevice& device) {
  constexpr double kWse2LinkBytes = 4;
  return kWse2LinkBytes / device.link_bytes_per_cycle.value;
}

// Cycles of a message to a neighbour of the ring, relative to WSE-2. Devices with a fit use the fit's beta, since the
// baselines were fitted with it.
double message_scale(const PlmrDevice& device) {
  const auto message = [](const PlmrDevice& d, double beta) {
    return 2 * d.alpha_cycles.value + 2 * d.ramp_cycles.value + beta;
  };
  static const double of_wse2 = message(plmr_preset("wse-2"), wse2_fit::kBetaCycles.value);
  const double beta = device.other_fits.empty() ? device.beta_cycles.value : wse2_fit::kBetaCycles.value;
  return message(device, beta) / of_wse2;
}

std::int64_t pieces(std::int64_t size, std::int64_t cores) {
  return (size - 1) / cores + 1;
}

WaferCost product_cost(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferMethod method) {
  const BaselineTiles tiles = baseline_tiles(size, mesh);
  const auto steps = static_cast<double>(tiles.steps);
  const double w = mesh.width, h = mesh.height, a = tiles.m * tiles.k, b = tiles.k * tiles.n, c = tiles.m * tiles.n;
  const double compute =
      steps * ((tiles.k + 2) * device.call_cycles.value + tiles.m * tiles.k * tiles.n * device.mac_cycles.value);
  const auto a_tiles = static_cast<double>(tiles.a_tiles), b_tiles = static_cast<double>(tiles.b_tiles);
  if (method == WaferMethod::t10)
    return {.breakdown = {{"compute", compute},
                          {"crossbar", steps * w * h * t10_message_cycles(device, size, mesh), Basis::fitted}},
            .memory_bytes = kValueBytes * ((a_tiles + 1) * a + (b_tiles + 1) * b + c),
            .routes = kT10Routes};
  const LadderReads reads = ladder_reads(device, size, mesh);
  return {.breakdown = {{"compute", compute}, {"remote reads", steps * (w * reads.a + h * reads.b), Basis::fitted}},
          .memory_bytes = kValueBytes * ((a_tiles + 1) * a + (b_tiles + 1) * b + 2 * c),
          .routes = kLadderRoutes};
}

double sum_turn(const BaselineConstants& constants, double n, WaferMethod method) {
  if (method == WaferMethod::t10) return constants.t10_relay;
  return constants.ladder_sum_access + constants.ladder_sum_value * n;
}

double weight_turn(const BaselineConstants& constants, double values) {
  return constants.ladder_sum_weight * std::pow(values, wse2_fit::kLadderWeightPower);
}

// For the GEMVs of a decode layer, each along the axis of its sum.
double ladder_weight_cycles(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t context) {
  const BaselineConstants constants = baseline_constants(device);
  const double w = mesh.width, h = mesh.height, d = model.hidden, f = model.intermediate,
               q = static_cast<double>(model.num_heads) * model.head_dim, s = static_cast<double>(context);
  const double active = std::max(model.experts_per_token, 1);
  const auto read = [&](double line, double k, double n) { return line * weight_turn(constants, k / h * n / w); };
  return 3 * read(h, d, q) + read(w, s, q) + read(h, s, q) + read(w, d, q) +
         active * (2 * read(h, d, f) + read(w, d, f));
}

std::string_view sums_of(WaferMethod method) {
  return method == WaferMethod::t10 ? "relayed sums" : "remote reads";
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

BaselineConstants baseline_constants(const PlmrDevice& device) {
  using namespace wse2_fit;
  const double scale = device.baseline_scale.value, message = scale * message_scale(device),
               link = scale * link_scale(device);
  return {.t10_crossbar = scale * kT10GemmCrossbar,
          .t10_relay = message * kT10SumRelay,
          .ladder_access = message * kLadderGemmAccess,
          .ladder_weight = link * kLadderGemmWeight,
          .ladder_sum_access = message * kLadderSumAccess,
          .ladder_sum_value = link * kLadderSumValue,
          .ladder_sum_weight = link * kLadderSumWeight,
          .t10_crossbar_power = kT10GemmPower,
          .ladder_weight_power = kLadderWeightPower};
}

double t10_message_cycles(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh) {
  const BaselineTiles tiles = baseline_tiles(size, mesh);
  const double messages = static_cast<double>(tiles.steps) * mesh.width * mesh.height;
  const double words = messages * tiles.k * tiles.n * kValueBytes / device.link_bytes_per_cycle.value;
  return baseline_constants(device).t10_crossbar * std::pow(words, wse2_fit::kT10GemmPower) / messages;
}

LadderReads ladder_reads(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh) {
  const BaselineConstants constants = baseline_constants(device);
  const double k = static_cast<double>(size.k) / std::max(mesh.width, mesh.height),
               n = static_cast<double>(size.n) / mesh.width;
  return {.a = constants.ladder_access,
          .b = constants.ladder_access + constants.ladder_weight * std::pow(k * n, wse2_fit::kLadderWeightPower)};
}

double baseline_gemv_turn(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh mesh,
                          WaferMethod method) {
  const BaselineConstants constants = baseline_constants(device);
  const double columns = static_cast<double>(n) / mesh.width, rows = static_cast<double>(k) / mesh.height;
  const double sum = sum_turn(constants, columns, method);
  return method == WaferMethod::t10 ? sum : sum + weight_turn(constants, rows * columns);
}

BaselineErrors baseline_errors(WaferMethod method) {
  using namespace wse2_fit;
  require(method != WaferMethod::waferllm, "no baseline");
  const BaselineResiduals& of = method == WaferMethod::t10 ? kT10Residuals : kLadderResiduals;
  return {.prefill = of.gemm_spread + 2 * of.gemm, .decode = of.sum_spread + 2 * of.sum};
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
  const WaferCost own = gemv_cost(device, k, n, mesh, {.method = WaferAllReduce::pipeline});  // for routes
  const auto memory_on = [&](WaferMesh m) {
    const double rows = static_cast<double>(pieces(k, m.height)), columns = static_cast<double>(pieces(n, m.width));
    const double placed = rows * columns + rows + 2 * columns;
    // ladder: all of it where it lives, and copies
    return kValueBytes * (method == WaferMethod::t10 ? placed : 2 * placed);
  };
  WaferCost cost{.breakdown = {{"compute", own.cycles("compute")},
                               {std::string(sums_of(method)),
                                mesh.height * baseline_gemv_turn(device, k, n, mesh, method), Basis::fitted}},
                 .memory_bytes = memory_on(mesh),
                 .routes = method == WaferMethod::t10 ? kT10Routes : kLadderRoutes};
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
    for (const WaferCost::Part& part : one.breakdown) cost.add(part.name, product.count * part.cycles, part.basis);
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
  const BaselineConstants constants = baseline_constants(device);
  double sums = method == WaferMethod::ladder ? ladder_weight_cycles(device, model, mesh, context) : 0;
  for (const LayerAllReduce& one : decode_all_reduces(model, mesh, context, TileSizes::exact))
    sums += one.line * sum_turn(constants, one.n, method);
  for (WaferCost::Part& part : cost.breakdown)
    if (part.name == "all-reduce") part = {std::string(sums_of(method)), sums, Basis::fitted};
  cost.routes = method == WaferMethod::t10 ? kT10Routes : kLadderRoutes;
  if (method == WaferMethod::ladder)  // a copy of the largest tile that is read
    cost.memory_bytes += kValueBytes * static_cast<double>(pieces(model.hidden, mesh.height)) *
                         static_cast<double>(pieces(model.intermediate, mesh.width));
  return cost;
}

}  // namespace heddle
