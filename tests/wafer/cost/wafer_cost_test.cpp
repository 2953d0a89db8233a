#include "wafer/cost/wafer_cost.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "wafer/cost/kv_accounting.h"
#include "wafer/cost/wafer_baselines.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr WaferModel kLlama8b{.num_layers = 32,
                              .hidden = 4096,
                              .intermediate = 14336,
                              .num_heads = 32,
                              .num_kv_heads = 8,
                              .head_dim = 128,
                              .vocab = 128256};
constexpr WaferModel kLlama13b{.num_layers = 40,
                               .hidden = 5120,
                               .intermediate = 13824,
                               .num_heads = 40,
                               .num_kv_heads = 40,
                               .head_dim = 128,
                               .vocab = 32000};

const PlmrDevice& wse2() {
  static const PlmrDevice device = plmr_preset("wse-2");
  return device;
}

constexpr WaferMesh square(int side) {
  return {side, side};
}

double percent_off(double predicted, double published) {
  return 100 * std::abs(predicted / published - 1);
}

struct Cell {
  const WaferModel& model;
  int side;
  double tokens_per_second;
};

TEST(WaferCost, PrefillIsWithinThreePercentOfTable3) {
  const Cell cells[] = {{kLlama8b, 480, 20320.6},  {kLlama8b, 600, 25037.2},  {kLlama8b, 720, 27686.5},
                        {kLlama13b, 480, 13685.1}, {kLlama13b, 600, 16854.2}, {kLlama13b, 720, 17498.3}};
  for (const Cell& cell : cells) {
    const double cycles = prefill_layer_cost(wse2(), cell.model, square(cell.side), 4096).cycles();
    EXPECT_LT(percent_off(4096 / wse2().seconds(cycles * cell.model.num_layers), cell.tokens_per_second), 3)
        << cell.model.num_layers << " layers on " << cell.side;
  }
}

TEST(WaferCost, DecodeIsWithinFivePercentOfTable4) {
  const Cell cells[] = {{kLlama8b, 420, 2699.9},  {kLlama8b, 540, 2501.5},  {kLlama8b, 660, 2243.3},
                        {kLlama13b, 420, 2039.2}, {kLlama13b, 540, 1899.4}, {kLlama13b, 660, 1739.8}};
  for (const Cell& cell : cells) {
    const double cycles = decode_layer_cost(wse2(), cell.model, square(cell.side), 4096).cycles();
    EXPECT_LT(percent_off(1 / wse2().seconds(cycles * cell.model.num_layers), cell.tokens_per_second), 5)
        << cell.model.num_layers << " layers on " << cell.side;
  }
}

TEST(WaferCost, GemvIsWithinFourPercentOfTable6) {
  EXPECT_LT(percent_off(wse2().seconds(gemv_cost(wse2(), 16384, 16384, square(750)).cycles()), 1.2e-6), 4);
}

TEST(WaferCost, CapacityIsTable5s) {
  const KvCapacity c = kv_capacity(wse2(), kLlama8b, square(360));
  EXPECT_EQ(c.regions, 6);
  EXPECT_EQ(c.concat_tokens, 382);
  EXPECT_LT(percent_off(static_cast<double>(c.shift_tokens), 137548), 0.1);
}

// One tile step of 301 cycles, tiles of 6 x 6, so of 18 words, on 720 x 720 cores with one cycle a hop, ramps of 2. The
// alignment shifts around the same ring, half as often.
TEST(WaferCost, CannonPaysTheLongWayByItsSynchronisation) {
  PlmrDevice device = plmr_preset("wse-2");
  device.mac_cycles.value = 0;
  device.call_cycles.value = 301.0 / 8;  // six slices, two transfers
  const auto cost = [&](WaferGemm method, WaferSync sync) {
    return gemm_cost(device, {4320, 4320, 4320}, square(720), method, sync);
  };
  const auto step = [&](WaferGemm method, WaferSync sync) {
    const WaferCost all = cost(method, sync);
    return (all.cycles() - all.cycles("alignment")) / 720;
  };
  EXPECT_NEAR(step(WaferGemm::cannon, WaferSync::dataflow), 302, 1e-9);             // one way in all: P alpha
  EXPECT_NEAR(step(WaferGemm::cannon, WaferSync::rendezvous), 18 + 360 + 2, 1e-9);  // every second step is short
  EXPECT_NEAR(step(WaferGemm::cannon, WaferSync::barrier), 18 + 719 + 2, 1e-9);
  EXPECT_NEAR(cost(WaferGemm::cannon, WaferSync::rendezvous).cycles("alignment"), 360 * 380, 1e-9);
  EXPECT_NEAR(cost(WaferGemm::cannon, WaferSync::barrier).cycles("alignment"), 360 * 739, 1e-9);
  for (const WaferSync sync : {WaferSync::dataflow, WaferSync::rendezvous, WaferSync::barrier}) {
    EXPECT_NEAR(step(WaferGemm::mesh_gemm, sync), 301, 1e-9);  // two hops hide behind any step
    EXPECT_NEAR(cost(WaferGemm::mesh_gemm, sync).cycles("alignment"), 360 * (18 + 4), 1e-9);
  }
}

TEST(WaferCost, MeshGemmIsNeverSlowerThanItsRivals) {
  for (const int size : {2048, 4096, 8192})
    for (const int side : {360, 540, 720})
      for (const WaferSync sync : {WaferSync::dataflow, WaferSync::rendezvous, WaferSync::barrier}) {
        const auto cycles = [&](WaferGemm method) {
          return gemm_cost(wse2(), {size, size, size}, square(side), method, sync).cycles();
        };
        EXPECT_LE(cycles(WaferGemm::mesh_gemm), cycles(WaferGemm::cannon)) << size << " " << side;
        EXPECT_LE(cycles(WaferGemm::mesh_gemm), cycles(WaferGemm::summa)) << size << " " << side;
      }
}

TEST(WaferCost, OnAMeshThatIsNotSquareACoreHoldsSeveralLogicalTiles) {
  PlmrDevice device = plmr_preset("wse-2");
  device.call_cycles.value = 0;
  device.mac_cycles.value = 1;
  // 12 x 12 logical tiles of 2 x 2 x 2: a core of 3 x 4 holds 4 x 3 of them. All cores together: 24^3.
  const WaferCost cost = gemm_cost(device, {24, 24, 24}, {3, 4}, WaferGemm::mesh_gemm);
  EXPECT_EQ(cost.breakdown.front().cycles, 24.0 * 24 * 24 / 12);
  EXPECT_EQ(cost.memory_bytes, 5 * 2 * 24.0 * 24 / 12);
}

// Two phases of a stage each, one and three hops long, and four hops back: g = G = 3.
TEST(WaferCost, KTreeIsItsFormula) {
  const WaferCost cost = all_reduce_cost(wse2(), 9, 8);
  const double beta = wse2().beta_cycles.value;
  EXPECT_NEAR(cost.cycles(), (1 + 3 + 4) + beta * 2 + 12, 1e-9);
}

TEST(WaferCost, AllReducesOfRivalsAreTheirFormulas) {
  const double beta = wse2().beta_cycles.value;
  EXPECT_NEAR(all_reduce_cost(wse2(), 9, 8, {.method = WaferAllReduce::pipeline}).cycles(), 18 + 9 * beta + 8, 1e-9);
  EXPECT_NEAR(all_reduce_cost(wse2(), 9, 36, {.method = WaferAllReduce::ring}).cycles(), 16 * (2 + beta + 2), 1e-9);
}

TEST(WaferCost, EnergyOfMoreCyclesIsMore) {
  const double short_context = decode_layer_cost(wse2(), kLlama8b, square(420), 64).cycles();
  const double long_context = decode_layer_cost(wse2(), kLlama8b, square(420), 8192).cycles();
  EXPECT_LT(wse2().joules(short_context), wse2().joules(long_context));
}

TEST(WaferCost, RefusesWhatExceedsMemoryOrRoutesWithPhaseNeedAndBudget) {
  EXPECT_THAT(
      [] {
        gemm_cost(wse2(), {4096, 4096, 4096}, square(720), WaferGemm::all_gather);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("all-gather GEMM"), HasSubstr("103896"), HasSubstr("49152"))));
  EXPECT_THAT([] { decode_layer_cost(wse2(), kLlama8b, square(420), 4096, {.phases = 3}); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("decode on 420 x 420: core (210, 210)"), HasSubstr("29 routes"),
                                              HasSubstr("21"), HasSubstr("K = 2 is the largest"))));
  EXPECT_THAT([] { decode_layer_cost(wse2(), kLlama8b, square(60), 4096); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("decode on 60 x 60: core (0, 0) needs"), HasSubstr("49152"), HasSubstr("too few"))));
  EXPECT_THAT([] { kv_capacity(wse2(), kLlama8b, square(360), {.regions = 1}); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("1 region"), HasSubstr("3 regions would do"))));
  EXPECT_THAT([] { kv_capacity(wse2(), kLlama8b, square(360), {.regions = 7}); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("7 regions of 360 x 360"), HasSubstr("make 6"), HasSubstr("4 lie side by side"))));
  EXPECT_THAT([] { kv_capacity(wse2(), kLlama8b, square(100), {.regions = 33}); },
              ThrowsMessage<InputError>(HasSubstr("33 regions share 32 layers")));
}

TEST(WaferCost, RefusesMeshesThatAreNone) {
  for (const WaferMesh mesh : {square(2), WaferMesh{2, 9}, WaferMesh{9, 2}, square(-1)})
    EXPECT_THAT(
        [&] {
          gemm_cost(wse2(), {8, 8, 8}, mesh, WaferGemm::mesh_gemm);
        },
        ThrowsMessage<InputError>(HasSubstr("3 or more")));
  EXPECT_THAT([] { gemv_cost(wse2(), 8, 8, square(751)); }, ThrowsMessage<InputError>(HasSubstr("750 x 994")));
  EXPECT_THROW(gemm_cost(wse2(), {0, 8, 8}, square(3), WaferGemm::mesh_gemm), InvalidArgument);
  EXPECT_THROW(prefill_layer_cost(wse2(), WaferModel{}, square(3), 1), InvalidArgument);
}

// Llama-3-8B's layer has 218.1 million weights, its tables 525.3 million each, a token of a layer 2048 values.
TEST(WaferCost, KvAccountingsDifferInWhatLiesOnACore) {
  constexpr double kCores = 360 * 360, kLayer = 2 * 218103808 / kCores, kTable = 2 * 128256.0 * 4096 / kCores;
  constexpr double kToken = 2 * 2048 / 360.0, kBuffers = 2 * (12 + 3 * 12 + 2 * 40), kSram = 49152;
  const std::vector<KvAccounting> ways = kv_accountings(wse2(), kLlama8b, square(360), 6);
  ASSERT_EQ(ways.size(), 8u);
  // Six layers without a table, or five with one.
  EXPECT_EQ(ways[0].fitted_constants(), 0);
  EXPECT_TRUE(ways[0].tables && ways[0].whole_layers);
  const double six = (kSram - kBuffers - 6 * kLayer) / (6 * kToken + 2);
  const double five = (kSram - kBuffers - 5 * kLayer - kTable) / (5 * kToken + 2);
  EXPECT_EQ(ways[0].concat_tokens, static_cast<std::int64_t>(std::min(six, five)));
  EXPECT_EQ(ways[0].concat_tokens, 406);  // the paper's 382 is 6 % less
  EXPECT_EQ(ways[2].concat_tokens, static_cast<std::int64_t>(six));
  EXPECT_EQ(ways[1].concat_tokens,
            static_cast<std::int64_t>((kSram - kBuffers - (32 * kLayer + 2 * kTable) / 6) / (32 * kToken / 6 + 2)));
  // Without tables, in fractions, with the fitted reserve: kv_capacity().
  EXPECT_EQ(ways[7].fitted_constants(), 1);
  EXPECT_EQ(ways[7].concat_tokens, 382);
  EXPECT_EQ(ways[7].shift_tokens, kv_capacity(wse2(), kLlama8b, square(360)).shift_tokens);
  // One region has both tables, and no core room for all of it.
  for (const KvAccounting& way : kv_accountings(wse2(), kLlama8b, square(360), 1)) EXPECT_EQ(way.shift_tokens, 0);
  EXPECT_THROW(kv_accountings(wse2(), kLlama8b, square(360), 33), InvalidArgument);
}

TEST(WaferBasis, NamesEachOnceInOneOrder) {
  EXPECT_EQ(text_of(Basis::held_out), "held out");
  EXPECT_EQ(text_of(Basis::fitted | Basis::simulated), "simulated + fitted");
  EXPECT_EQ(text_of(Basis::counted | Basis::counted | Basis::published | Basis::analytical),
            "counted + analytical + published");
  EXPECT_EQ(text_of(Bases()), "");
  EXPECT_TRUE((Basis::counted | Basis::fitted).has(Basis::fitted));
  EXPECT_FALSE((Basis::counted | Basis::fitted).has(Basis::simulated));
}

TEST(WaferBasis, APartHasItsCyclesByBasis) {
  WaferCost cost;
  cost.add("norms", 3, Basis::simulated);
  cost.add("norms", 4, Basis::analytical);
  cost.add("norms", 5, Basis::simulated);
  cost.add("products", 6, Basis::simulated);
  EXPECT_EQ(cost.breakdown.size(), 3u);
  EXPECT_EQ(cost.cycles("norms"), 12);
  EXPECT_EQ(cost.cycles(Basis::simulated), 14);
  EXPECT_EQ(cost.cycles(Basis::fitted), 0);
  EXPECT_EQ(cost.bases(), Basis::simulated | Basis::analytical);
  EXPECT_EQ(cost.bases("products"), Basis::simulated);
}

// Decode's formula has a part that stands for nothing, and T10's and Ladder's have little else beside compute.
TEST(WaferBasis, FormulasSayWhichOfTheirPartsAreFitted) {
  const PlmrDevice device = plmr_preset("wse-2");
  EXPECT_EQ(gemm_cost(device, {512, 512, 512}, {64, 64}, WaferGemm::cannon).bases(), Basis::analytical);
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder}) {
    const WaferCost gemm = gemm_cost(device, {512, 512, 512}, {64, 64}, method);
    EXPECT_EQ(gemm.bases("compute"), Basis::analytical);
    EXPECT_DOUBLE_EQ(gemm.cycles(Basis::fitted) + gemm.cycles("compute"), gemm.cycles());
    EXPECT_EQ(gemv_cost(device, 512, 512, {64, 64}, method).bases(), Basis::analytical | Basis::fitted);
  }
}

}  // namespace
}  // namespace heddle
