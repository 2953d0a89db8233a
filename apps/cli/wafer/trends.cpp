#include "cli/wafer/trends.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/wafer/wafer.h"
#include "wafer/cost/wafer_predict.h"
#include "wafer/cost/wafer_published.h"

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
  // The fraction of its time that is compute.
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

  double own = 1;
  for (const int n : {2048, 4096, 8192}) own = std::min(own, costs.efficiency(n, 720, WaferGemm::mesh_gemm));
  trends.push_back({"fig 9: MeshGEMM's compute share at 720 (2K to 8K, calls are compute)", "> 70 %",
                    fmt::format("{:.0f} % and more", 100 * own), own > 0.7});
  const auto hidden = [&](int side) {
    const WaferCost cost = gemm_cost(costs.device, {2048, 2048, 2048}, {side, side}, WaferGemm::mesh_gemm);
    return cost.cycles("communication") + cost.cycles("alignment");
  };
  trends.push_back({"7.2: MeshGEMM's communication, 2K from 600 to 720", "slight increase",
                    fmt::format("{:.0f} to {:.0f} cycles", hidden(600), hidden(720)), hidden(720) > hidden(600)});
  for (const WaferSync sync : {WaferSync::dataflow, WaferSync::barrier}) {
    const auto sent = [&](int side) {
      const WaferCost cost = gemm_cost(costs.device, {8192, 8192, 8192}, {side, side}, WaferGemm::summa, sync);
      return (cost.cycles() - cost.cycles("compute")) / 1e3;
    };
    std::string cycles;
    bool falls = true;
    for (std::size_t i = 0; i < std::size(kGemmSides); ++i) {
      cycles += fmt::format("{}{:.0f}K", i == 0 ? "" : ", ", sent(kGemmSides[i]));
      falls = falls && (i == 0 || sent(kGemmSides[i]) < sent(kGemmSides[i - 1]));
    }
    trends.push_back({fmt::format("7.2: GEMM 8K's communication from 360 to 720, SUMMA ({})",
                                  sync == WaferSync::dataflow ? "dataflow" : "barriers"),
                      "falls", cycles, falls});
  }
  for (const auto& [name, method] : {std::pair{"SUMMA", WaferGemm::summa}, std::pair{"Cannon", WaferGemm::cannon}}) {
    const double share = costs.efficiency(2048, 720, method);
    trends.push_back({fmt::format("fig 9: {}'s compute share at 720 (2K, barriers)", name), "< 50 %",
                      fmt::format("{:.0f} %", 100 * share), share < 0.5});
    const double growth = costs.gemm(2048, 720, method) / costs.gemm(2048, 360, method);
    trends.push_back({fmt::format("fig 9: GEMM 2K from 360 to 720, {} (barriers)", name), "takes longer",
                      fmt::format("x {:.2f}", growth), growth > 1});
    // Section 1 states neither size nor mesh: figure 9's smallest matrix, on its two largest meshes.
    const double at_600 = costs.times_faster(2048, 600, method), at_720 = costs.times_faster(2048, 720, method);
    trends.push_back({fmt::format("MeshGEMM over {} (2K at 600 and 720, barriers)", name), "2 to 3 x",
                      fmt::format("{:.1f} and {:.1f} x", at_600, at_720),
                      std::min(at_600, at_720) >= 1.95 && std::max(at_600, at_720) <= 3.05});
  }
  const double growth = costs.gemm(2048, 720, WaferGemm::mesh_gemm) / costs.gemm(2048, 360, WaferGemm::mesh_gemm);
  trends.push_back({"fig 9: GEMM 2K from 360 to 720, MeshGEMM", "stable", fmt::format("x {:.2f}", growth),
                    growth > 0.8 && growth < 1.25});
  // "At large scales", which the text does not specify either: 600 and 720, both baselines.
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

// "On average, up to": within 5 % of the first and 10 % of the second figure.
void add_ratios(std::string statement, double said_mean, double said_most, const std::vector<double>& ratios,
                Bases basis, std::vector<WaferTrend>& trends) {
  double mean = 0, most = 0;
  for (const double ratio : ratios) mean += ratio / static_cast<double>(ratios.size()), most = std::max(most, ratio);
  const bool says_most = said_most > 0;
  const bool holds = std::abs(mean / said_mean - 1) < 0.05 && (!says_most || std::abs(most / said_most - 1) < 0.1);
  trends.push_back(
      {std::move(statement),
       says_most ? fmt::format("{:.3g}, to {:.3g} x", said_mean, said_most) : fmt::format("{:.3g} x", said_mean),
       fmt::format("{:.3g}, to {:.3g} x", mean, most), holds, basis});
}

// The text states neither mesh nor models: all four models, on the meshes whose known cells have such ratios.
void add_times_faster(const Costs& costs, std::vector<WaferTrend>& trends) {
  const auto ratios = [&](WaferPhase phase, int side, WaferMethod rival) {
    std::vector<double> all;
    for (const char* model : {"llama-3-8b", "llama-2-13b", "codellama-34b", "qwen2-72b"})
      all.push_back(costs.tokens(model, phase, side) / costs.tokens(model, phase, side, rival));
    return all;
  };
  const auto prefill = [&](int side, WaferMethod rival) { return ratios(WaferPhase::prefill, side, rival); };
  const auto decode = [&](WaferMethod rival) { return ratios(WaferPhase::decode, 420, rival); };
  // Two models' cells were fitted, the others' held out, and the averages were fitted with the cells.
  const Bases basis = Basis::fitted | Basis::held_out;
  add_ratios("7.1: prefill over T10 (four models, 600)", 160, 178, prefill(600, WaferMethod::t10), basis, trends);
  add_ratios("7.1: prefill over Ladder, \"270 x to 450 x\" (four models, 480)", 270, 0,
             prefill(480, WaferMethod::ladder), basis, trends);
  add_ratios("7.1: prefill over Ladder, the same (four models, 600)", 450, 0, prefill(600, WaferMethod::ladder), basis,
             trends);
  add_ratios("7.1: decode over T10 (four models, 420)", 5.7, 6.5, decode(WaferMethod::t10), basis, trends);
  add_ratios("7.1: decode over Ladder (four models, 420)", 217, 260, decode(WaferMethod::ladder), basis, trends);
}

// Table 2's, of two models.
void add_end_to_end(const Costs& costs, std::vector<WaferTrend>& trends) {
  const auto ratios = [&](WaferMethod rival, int first, int last) {
    std::vector<double> all;
    for (const char* name : {"llama-3-8b", "llama-2-13b"})
      for (int i = first; i < last; ++i) {
        const NamedWaferModel model = open_wafer_model(name);
        const WaferModelMeshes meshes = default_meshes(name);
        const int in = published::kEndToEndLengths[i][0], out = published::kEndToEndLengths[i][1];
        const auto rate = [&](WaferMethod method) {
          return predict_wafer(costs.device, model.sizes,
                               {.phase = WaferPhase::end_to_end,
                                .prefill_mesh = meshes.prefill,
                                .decode_mesh = method == WaferMethod::waferllm ? meshes.decode : meshes.prefill,
                                .context = in,
                                .output = out,
                                .method = method})
              .tokens_per_second;
        };
        all.push_back(rate(WaferMethod::waferllm) / rate(rival));
      }
    return all;
  };
  const Bases seen = Basis::analytical | Basis::fitted;  // with decode's residual and the baselines' constants
  add_ratios("7.1: end to end over T10, 128 tokens out", 160, 180, ratios(WaferMethod::t10, 0, 2), seen, trends);
  add_ratios("7.1: end to end over T10, 2048 and 4096 out", 36, 48, ratios(WaferMethod::t10, 2, 4),
             seen | Basis::held_out, trends);
  add_ratios("7.1: end to end over Ladder, 128 tokens out", 625, 677, ratios(WaferMethod::ladder, 0, 2), seen, trends);
  add_ratios("7.1: end to end over Ladder, 2048 and 4096 out", 312, 342, ratios(WaferMethod::ladder, 2, 4),
             seen | Basis::held_out, trends);
}

void add_table_statements(const Costs& costs, std::vector<WaferTrend>& trends) {
  struct Gain {
    const char* model;
    double said;
    Bases basis;
  };
  const Bases unseen = Basis::analytical | Basis::held_out;
  for (const auto& [model, said, basis] : {Gain{"llama-3-8b", 1.4, Basis::fitted}, Gain{"qwen2-72b", 1.6, unseen}}) {
    const double gain = costs.tokens(model, WaferPhase::prefill, 720) / costs.tokens(model, WaferPhase::prefill, 480);
    trends.push_back({fmt::format("7.1: {}'s prefill from 480 to 720", model), fmt::format("{} x", said),
                      fmt::format("{:.2f} x", gain), std::abs(gain / said - 1) < 0.05, basis});
  }
  add_times_faster(costs, trends);
  add_end_to_end(costs, trends);
  const double ms = costs.device.seconds(costs.gemv(32768, 750).cycles()) * 1e3;
  const double times = published::kGemvs[0].gpu_ms[2] / ms;  // 16 GPUs take about as long for 32K as for 16K
  trends.push_back({"7.5: 32K GEMV over 16 A100s", "166 x", fmt::format("{:.0f} x", times), times > 155 && times < 177,
                    unseen | Basis::published});  // the GPUs' time is
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
