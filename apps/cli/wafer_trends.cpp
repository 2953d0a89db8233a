#include "cli/wafer_trends.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/wafer.h"
#include "topology/wafer_predict.h"
#include "topology/wafer_published.h"

namespace heddle {
namespace {

constexpr int kGemmSides[] = {360, 480, 600, 720};
constexpr int kGemvSides[] = {120, 240, 360, 480, 600, 720};

struct Costs {
  const PlmrDevice& device;

  double gemm(int n, int side, WaferGemm method, WaferSync sync = WaferSync::barrier) const {
    return gemm_cost(device, {n, n, n}, {side, side}, method, sync).cycles();
  }
  double times_faster(int n, int side, WaferGemm rival) const {
    return gemm(n, side, rival) / gemm(n, side, WaferGemm::mesh_gemm);
  }
  // Of its time, the part that is compute.
  double efficiency(int n, int side, WaferGemm method, WaferSync sync = WaferSync::barrier) const {
    const WaferCost cost = gemm_cost(device, {n, n, n}, {side, side}, method, sync);
    return cost.cycles("compute") / cost.cycles();
  }
  WaferCost gemv(int n, int side, WaferAllReduce method = WaferAllReduce::k_tree) const {
    return gemv_cost(device, n, n, {side, side}, {.method = method});
  }
  double tokens(std::string_view model, WaferPhase phase, int side, WaferMethod method = WaferMethod::waferllm) const {
    const WaferMesh mesh{side, side};
    return predict_wafer(device, open_wafer_model(std::string(model)).sizes,
                         {.phase = phase, .prefill_mesh = mesh, .decode_mesh = mesh, .method = method})
        .tokens_per_second;
  }
};

void add_gemm_trends(const Costs& costs, std::vector<WaferTrend>& trends) {
  bool least = true;
  for (const int n : {2048, 4096, 8192})
    for (const int side : kGemmSides)
      for (const WaferGemm rival : {WaferGemm::summa, WaferGemm::cannon})
        least = least && costs.gemm(n, side, WaferGemm::mesh_gemm) <= costs.gemm(n, side, rival);
  trends.push_back(
      {"fig 9: MeshGEMM is fastest, 2K to 8K, 360 to 720", "always", least ? "always" : "not always", least});

  const double own = costs.efficiency(8192, 720, WaferGemm::mesh_gemm);
  trends.push_back(
      {"fig 9: MeshGEMM's compute share at 720 (8K)", "> 70 %", fmt::format("{:.0f} %", 100 * own), own > 0.7});
  for (const auto& [name, method] : {std::pair{"SUMMA", WaferGemm::summa}, std::pair{"Cannon", WaferGemm::cannon}}) {
    const double share = costs.efficiency(2048, 720, method);
    trends.push_back({fmt::format("fig 9: {}'s compute share at 720 (2K, barriers)", name), "< 50 %",
                      fmt::format("{:.0f} %", 100 * share), share < 0.5});
    const double growth = costs.gemm(2048, 720, method) / costs.gemm(2048, 360, method);
    trends.push_back({fmt::format("fig 9: GEMM 2K from 360 to 720, {} (barriers)", name), "takes longer",
                      fmt::format("x {:.2f}", growth), growth > 1});
    // Section 1 names neither size nor mesh: figure 9's smallest matrix, on its two largest meshes.
    const double at_600 = costs.times_faster(2048, 600, method), at_720 = costs.times_faster(2048, 720, method);
    const double mean = (at_600 + at_720) / 2;
    trends.push_back({fmt::format("MeshGEMM over {} (2K at 600 and 720, barriers)", name), "2 to 3 x",
                      fmt::format("{:.1f} and {:.1f} x", at_600, at_720), mean >= 1.95 && mean <= 3.05});
  }
  const double growth = costs.gemm(2048, 720, WaferGemm::mesh_gemm) / costs.gemm(2048, 360, WaferGemm::mesh_gemm);
  trends.push_back({"fig 9: GEMM 2K from 360 to 720, MeshGEMM", "stable", fmt::format("x {:.2f}", growth),
                    growth > 0.8 && growth < 1.25});
  // "At large scales", which the text does not give either: 600 and 720, both rivals.
  double saved = 0;
  std::string of_each;
  for (const int side : {600, 720})
    for (const auto& [name, method] : {std::pair{"SUMMA", WaferGemm::summa}, std::pair{"Cannon", WaferGemm::cannon}}) {
      const double part = 100 * (1 - 1 / costs.times_faster(8192, side, method));
      saved += part / 4;
      of_each += fmt::format("{}{:.0f}", of_each.empty() ? "" : ", ", part);
    }
  trends.push_back({"7.2: cycles that MeshGEMM saves at 8K, 600 and 720 (barriers)", "about 17 %",
                    fmt::format("{:.0f} % ({})", saved, of_each), std::abs(saved - 17) < 2});
}

void add_gemv_trends(const Costs& costs, std::vector<WaferTrend>& trends) {
  const WaferCost small = costs.gemv(2048, 720);
  const double share = 1 - small.cycles("compute") / small.cycles();
  trends.push_back({"fig 10: communication's share of a GEMV (2K at 720)", "up to 90 %",
                    fmt::format("{:.0f} %", 100 * share), share > 0.85 && share <= 0.9});
  const double times = costs.gemv(16384, 600, WaferAllReduce::pipeline).cycles() / costs.gemv(16384, 600).cycles();
  trends.push_back({"fig 10: MeshGEMV over the pipeline (16K at 600)", "4.6 x; 4 to 8 x",
                    fmt::format("{:.1f} x", times), times >= 4 && times <= 8});
  const auto best_side = [&](int n, WaferAllReduce method) {
    return *std::ranges::min_element(kGemvSides, {}, [&](int side) { return costs.gemv(n, side, method).cycles(); });
  };
  for (const int n : {8192, 16384}) {
    const int own = best_side(n, WaferAllReduce::k_tree), theirs = best_side(n, WaferAllReduce::pipeline);
    trends.push_back({fmt::format("fig 10: GEMV {}K turns later for MeshGEMV", n / 1024), "later",
                      fmt::format("at {}, the pipeline at {}", own, theirs), own > theirs});
  }
}

void add_table_statements(const Costs& costs, std::vector<WaferTrend>& trends) {
  for (const auto& [model, said] : {std::pair{"llama-3-8b", 1.4}, std::pair{"qwen2-72b", 1.6}}) {
    const double gain = costs.tokens(model, WaferPhase::prefill, 720) / costs.tokens(model, WaferPhase::prefill, 480);
    trends.push_back({fmt::format("7.1: {}'s prefill from 480 to 720", model), fmt::format("{} x", said),
                      fmt::format("{:.2f} x", gain), gain > said - 0.06 && gain < said + 0.06});
  }
  double sum = 0;
  for (const char* model : {"llama-3-8b", "llama-2-13b", "codellama-34b", "qwen2-72b"})
    sum +=
        costs.tokens(model, WaferPhase::decode, 420) / costs.tokens(model, WaferPhase::decode, 420, WaferMethod::t10);
  trends.push_back({"7.1: decode over T10 (four models, 420)", "5.7 x", fmt::format("{:.1f} x", sum / 4),
                    sum / 4 > 5.3 && sum / 4 < 6.1});
  const double ms = costs.device.seconds(costs.gemv(32768, 750).cycles()) * 1e3;
  const double times = published::kGemvs[0].gpu_ms[2] / ms;  // 16 GPUs take about as long for 32K as for 16K
  trends.push_back(
      {"7.5: 32K GEMV over 16 A100s", "166 x", fmt::format("{:.0f} x", times), times > 155 && times < 177});
}

}  // namespace

std::vector<WaferTrend> wafer_trends(const PlmrDevice& device) {
  std::vector<WaferTrend> trends;
  const Costs costs{device};
  add_gemm_trends(costs, trends);
  add_gemv_trends(costs, trends);
  add_table_statements(costs, trends);
  return trends;
}

}  // namespace heddle
