#include "topology/wafer_baselines.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "topology/wse2_fit.h"

namespace heddle {
namespace {

struct Relays {
  wse2_fit::Relay gemm, all_reduce;
};

Relays relays_of(WaferMethod method) {
  switch (method) {
    case WaferMethod::t10:
      return {wse2_fit::kT10Gemm, wse2_fit::kT10AllReduce};
    case WaferMethod::ladder:
      return {wse2_fit::kLadderGemm, wse2_fit::kLadderAllReduce};
    case WaferMethod::waferllm:
      break;
  }
  throw_error<InvalidArgument>("no baseline");
}

double link_words(const PlmrDevice& device, double values) {
  return values * kValueBytes / device.link_bytes_per_cycle.value;
}

double pieces(std::int64_t size, std::int64_t cores) {
  const std::int64_t rounded_up = (size - 1) / cores + 1;
  return static_cast<double>(rounded_up);
}

// All steps of a GEMM.
double relayed_tiles(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, wse2_fit::Relay relay) {
  const std::int64_t side = std::lcm(std::int64_t{mesh.width}, std::int64_t{mesh.height});
  const double steps = static_cast<double>(side), columns = steps / mesh.width, rows = steps / mesh.height;
  const double m = pieces(size.m, side), k = pieces(size.k, side), n = pieces(size.n, side);
  const double a = link_words(device, rows * m * k), b = link_words(device, columns * k * n);
  return steps *
         (mesh.width * (relay.cycles + relay.word_cycles * a) + mesh.height * (relay.cycles + relay.word_cycles * b));
}

double relayed_sum(const PlmrDevice& device, int line, double n, wse2_fit::Relay relay) {
  return line * (relay.cycles + relay.word_cycles * link_words(device, n));
}

}  // namespace

WaferCost gemm_cost(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferMethod method) {
  WaferCost cost = gemm_cost(device, size, mesh, WaferGemm::mesh_gemm);
  if (method == WaferMethod::waferllm) return cost;
  cost.breakdown = {{"compute", cost.cycles("compute")},
                    {"relayed tiles", relayed_tiles(device, size, mesh, relays_of(method).gemm)}};
  return cost;
}

WaferCost gemv_cost(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh mesh, WaferMethod method) {
  WaferCost cost = gemv_cost(device, k, n, mesh);
  if (method == WaferMethod::waferllm) return cost;
  cost.breakdown = {
      {"compute", cost.cycles("compute")},
      {"relayed sums", relayed_sum(device, mesh.height, pieces(n, mesh.width), relays_of(method).all_reduce)}};
  return cost;
}

WaferCost prefill_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens,
                             WaferMethod method) {
  WaferCost cost = prefill_layer_cost(device, model, mesh, tokens);
  if (method == WaferMethod::waferllm) return cost;
  cost.breakdown = {{"compute", 0}, {"relayed tiles", 0}};
  for (const LayerGemm& product : prefill_gemms(model, tokens)) {
    const WaferCost own = gemm_cost(device, product.size, mesh, WaferGemm::mesh_gemm);
    cost.breakdown[0].cycles += product.count * own.cycles("compute");
    cost.breakdown[1].cycles += product.count * relayed_tiles(device, product.size, mesh, relays_of(method).gemm);
  }
  return cost;
}

WaferCost decode_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t context,
                            WaferMethod method, const AllReduceOptions& options) {
  WaferCost cost = decode_layer_cost(device, model, mesh, context, options);
  if (method == WaferMethod::waferllm) return cost;
  double sums = 0;
  for (const LayerAllReduce& one : decode_all_reduces(model, mesh, context))
    sums += relayed_sum(device, one.line, one.n, relays_of(method).all_reduce);
  for (WaferCost::Part& part : cost.breakdown)
    if (part.name == "all-reduce") part = {"relayed sums", sums};
  return cost;
}

}  // namespace heddle
