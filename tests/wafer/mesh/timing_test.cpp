// Programs on the max-plus mesh compared with the analytical model of wafer/cost/wafer_cost.h, on every mesh from 3 to
// 33 and on meshes that are not square.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/two_hop.h"
#include "wafer/mesh/gemm.h"
#include "wafer/mesh/gemv.h"
#include "wafer/mesh/max_plus_mesh.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using schedule::KTree;
using schedule::TwoHop;

// Proofs for every line length that the tests of programs use. One constant for each length, since compilers bound the
// steps of one.
template <int kCores>
constexpr bool kTwoHopsAndFreeLinks =
    schedule::all_ways_are_two_hops_at_most(TwoHop{kCores}) && schedule::no_link_carries_two(TwoHop{kCores});

template <int kFirst, int... kMore>
constexpr bool every_ring_has_two_hops_and_free_links(std::integer_sequence<int, kMore...>) {
  return (kTwoHopsAndFreeLinks<kFirst + kMore> && ...);
}
constexpr bool every_tree_has_a_path_a_phase_and_one(int most) {
  for (int cores = 3; cores <= most; ++cores)
    for (int phases = 1; phases <= 3; ++phases)
      if (KTree::of(cores, phases).paths_at_root() > phases + 1) return false;
  return true;
}
static_assert(every_ring_has_two_hops_and_free_links<3>(std::make_integer_sequence<int, 31>()),  // 3 to 33
              "proof failed: INTERLEAVE's ways of two hops");
static_assert(every_tree_has_a_path_a_phase_and_one(33), "proof failed: the K + 1 paths of a K-tree's root");
static_assert(KTree::of(33, 1).paths_at_root() == 2 && KTree::of(33, 2).paths_at_root() == 3);
static_assert(KTree::of(720, 2).paths_at_root() == 3 && KTree::of(720, 3).paths_at_root() == 4);

constexpr WaferGemm kMethods[] = {WaferGemm::mesh_gemm, WaferGemm::gemm_t, WaferGemm::summa, WaferGemm::cannon,
                                  WaferGemm::all_gather};
constexpr WaferSync kSyncs[] = {WaferSync::dataflow, WaferSync::rendezvous, WaferSync::barrier};

// A large core, so that every program fits, and whole cycles.
PlmrDevice roomy() {
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 1e9;
  device.mac_cycles.value = 1;
  device.call_cycles.value = 4;
  device.beta_cycles.value = 3;
  return device;
}

PlmrDevice without_compute() {
  PlmrDevice device = roomy();
  device.mac_cycles.value = device.call_cycles.value = 0;
  return device;
}

struct GemmCase {
  WaferMesh cores;
  GemmSize size;
};

std::vector<GemmCase> all_meshes() {
  std::vector<GemmCase> cases;
  for (int side = 3; side <= 33; ++side) cases.push_back({{side, side}, {4 * side, 5 * side - 1, 3 * side + 1}});
  for (const WaferMesh cores : {WaferMesh{3, 4}, {4, 3}, {6, 3}, {5, 7}, {8, 12}, {12, 8}, {32, 24}})
    cases.push_back({cores, {50, 70, 90}});
  return cases;
}

// All ways of a step, once an axis and a way back.
double ways(const PlmrDevice& device, WaferMesh cores, double each) {
  return 2 * (cores.width + cores.height) * (device.alpha_cycles.value + each);
}

// The analytical model counts a path as a whole line, with a stage where there are stages: the first and the last step of
// a program differ from it by less than all ways together. Where a core's places share transfers, they do so twice. An
// all-gather has one way, which the model counts exactly.
TEST(MeshTiming, TheAnalyticalModelIsTheProgramsInEverySynchronisation) {
  for (const PlmrDevice& device : {roomy(), without_compute()})
    for (const auto& [cores, size] : all_meshes())
      for (const WaferGemm method : kMethods)
        for (const WaferSync sync : kSyncs) {
          const double simulated = simulate_gemm_cycles(device, size, cores, method, sync);
          const double predicted = gemm_cost(device, size, cores, method, sync).cycles();
          const double each = method == WaferGemm::gemm_t ? device.beta_cycles.value : 0;
          double slack = (cores.width == cores.height ? 0.75 : 2) * ways(device, cores, each);
          if (method == WaferGemm::all_gather) slack = 1e-9 * predicted;
          EXPECT_NEAR(simulated, predicted, slack) << cores.width << " x " << cores.height << ", method "
                                                   << static_cast<int>(method) << ", sync " << static_cast<int>(sync);
        }
}

// On WSE-2 at the sizes of figure 9: the figures in docs/notes/mesh.md. GEMM-T and SUMMA take seconds in the other
// synchronisations of the larger meshes.
TEST(MeshTiming, TheAnalyticalModelIsWithinAFifthOfAPercentAtThePapersScale) {
  const PlmrDevice wse2 = plmr_preset("wse-2");
  for (const int side : {480, 600, 720})
    for (const WaferGemm method : {WaferGemm::mesh_gemm, WaferGemm::gemm_t, WaferGemm::summa, WaferGemm::cannon})
      for (const WaferSync sync : kSyncs) {
        const bool is_slow = method == WaferGemm::gemm_t || method == WaferGemm::summa;
        if (side > 480 && is_slow && sync != WaferSync::dataflow) continue;
        const double simulated = simulate_gemm_cycles(wse2, {2048, 2048, 2048}, {side, side}, method, sync);
        const double predicted = gemm_cost(wse2, {2048, 2048, 2048}, {side, side}, method, sync).cycles();
        EXPECT_NEAR(simulated / predicted, 1, 0.002)
            << side << ", method " << static_cast<int>(method) << ", sync " << static_cast<int>(sync);
      }
}

TEST(MeshTiming, RefusesMoreStepsThanSecondsHave) {
  EXPECT_THAT(
      [] {
        simulate_gemm(plmr_preset("wse-2"), {4096, 4096, 4096}, {749, 750}, WaferGemm::gemm_t);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("561750 steps"), HasSubstr("at most"))));
}

TEST(MeshTiming, NoSynchronisationMakesAProgramFaster) {
  for (const PlmrDevice& device : {roomy(), without_compute()})
    for (const auto& [cores, size] : all_meshes())
      for (const WaferGemm method : kMethods) {
        double before = 0;
        for (const WaferSync sync : kSyncs) {
          const double cycles = simulate_gemm_cycles(device, size, cores, method, sync);
          EXPECT_GE(cycles, before - 1e-6) << cores.width << " x " << cores.height << ", method "
                                           << static_cast<int>(method) << ", sync " << static_cast<int>(sync);
          before = cycles;
        }
      }
}

// Two hops overlap with any step; the long path of Cannon does not (docs/notes/mesh.md).
TEST(MeshTiming, SynchronisationCostsMeshGemmNothingAndCannonTheLongWay) {
  PlmrDevice device = roomy();
  const int side = 33;
  const GemmSize size{side * 2, side * 2, side * 2};
  const double step = 2 * 4 + 2 * 4 + 8, words = 2, way = side - 1 + device.ramp_cycles.value;
  const auto loop = [&](WaferGemm method, WaferSync sync) {
    MaxPlusMesh mesh(device, Grid::square({side, side}, line_order(method)), {.sync = sync});
    run_gemm(mesh, allocate_gemm(mesh, size, method), method);
    const WaferCost phases{.breakdown = mesh.breakdown()};
    return (mesh.cycles() - phases.cycles("alignment")) / side;
  };
  for (const WaferSync sync : kSyncs) EXPECT_NEAR(loop(WaferGemm::mesh_gemm, sync), step, 0.2);
  EXPECT_NEAR(loop(WaferGemm::cannon, WaferSync::dataflow), step, 1);
  // Of two steps one waits for the long path, one for a hop.
  EXPECT_NEAR(loop(WaferGemm::cannon, WaferSync::rendezvous),
              std::max(step, words + (way + 1 + device.ramp_cycles.value) / 2), 1);
  EXPECT_NEAR(loop(WaferGemm::cannon, WaferSync::barrier), words + way, 1e-6);
}

// Hops and words are simulated, and no cost of an operation, a call, a stage or a slice is in them: those are analytical.
TEST(MeshTiming, WhatIsSimulatedHoldsNoFittedConstant) {
  const PlmrDevice wse2 = plmr_preset("wse-2");
  PlmrDevice dear = wse2;
  for (Constant PlmrDevice::*constant : kFittedConstants) (dear.*constant).value *= 3;
  dear.vector_slice_cycles.value = 5;
  const auto compare = [](const WaferCost& cheap, const WaferCost& expensive) {
    EXPECT_GT(cheap.cycles(Basis::simulated), 0);
    EXPECT_DOUBLE_EQ(cheap.cycles(Basis::simulated), expensive.cycles(Basis::simulated));
    EXPECT_LT(cheap.cycles(Basis::analytical), expensive.cycles(Basis::analytical));
    EXPECT_EQ(cheap.bases(), Basis::simulated | Basis::analytical);
  };
  for (const WaferSync sync : kSyncs) {
    for (const WaferGemm method : kMethods) {
      const WaferCost cost = simulate_gemm(wse2, {60, 70, 80}, {12, 12}, method, sync);
      compare(cost, simulate_gemm(dear, {60, 70, 80}, {12, 12}, method, sync));
      const double all = simulate_gemm_cycles(wse2, {60, 70, 80}, {12, 12}, method, sync);
      EXPECT_NEAR(cost.cycles(), all, 1e-9 * all);
    }
    for (const WaferAllReduce method : {WaferAllReduce::k_tree, WaferAllReduce::pipeline, WaferAllReduce::ring}) {
      const AllReduceOptions options{.method = method, .sync = sync};
      compare(simulate_all_reduce(wse2, 20, 9, options), simulate_all_reduce(dear, 20, 9, options));
      compare(simulate_gemv(wse2, 90, 70, {9, 12}, options), simulate_gemv(dear, 90, 70, {9, 12}, options));
    }
  }
}

TEST(MeshTiming, StoppingEarlyChangesNothing) {
  for (const WaferSync sync : kSyncs)
    for (const PlmrDevice& device : {roomy(), without_compute()})
      for (const LineOrder order : {LineOrder::interleaved, LineOrder::natural})
        for (const WaferMesh cores : {WaferMesh{33, 33}, {17, 4}, {3, 3}}) {
          double cycles[2];
          for (const Stop stop : {Stop::steady, Stop::never}) {
            MaxPlusMesh mesh(device, Grid::square(cores, order), {.sync = sync, .stop = stop});
            const GemmTiles t = allocate_gemm(mesh, {200, 300, 100}, WaferGemm::mesh_gemm);
            mesh_gemm(mesh, t.a, t.b, t.c);
            cycles[static_cast<int>(stop)] = mesh.cycles();
          }
          EXPECT_NEAR(cycles[0], cycles[1], 1e-6 * cycles[1]);
        }
}

// Ticks become longer as clocks diverge or steps grow; the sums stay right.
TEST(MeshTiming, HoldsStepsOfAnyLength) {
  for (const double mac : {1e-3, 1.0, 1e4, 1e9}) {
    PlmrDevice device = roomy();
    device.mac_cycles.value = mac;
    const double simulated = simulate_gemm(device, {64, 64, 64}, {9, 9}, WaferGemm::mesh_gemm).cycles();
    const double predicted = gemm_cost(device, {64, 64, 64}, {9, 9}, WaferGemm::mesh_gemm).cycles();
    EXPECT_NEAR(simulated, predicted, 1e-4 * predicted + 20) << mac;
  }
}

// K-trees at the paper's scale, up to K = 4: only the last, smaller group of a phase is inexact.
TEST(MeshTiming, KTreesAreWithinTwoPercentAtThePapersScale) {
  PlmrDevice wse2 = plmr_preset("wse-2");
  wse2.free_routes.value = 100;
  for (const int line : {240, 360, 420, 480, 540, 600, 660, 720, 750})
    for (const int n : {1, 22, 44})
      for (const int phases : {1, 2, 3, 4})
        for (const WaferSync sync : kSyncs) {
          const AllReduceOptions options{.phases = phases, .sync = sync};
          const double simulated = simulate_all_reduce(wse2, line, n, options).cycles();
          EXPECT_NEAR(all_reduce_cost(wse2, line, n, options).cycles() / simulated, 1, 0.02)
              << line << " cores, K = " << phases << ", sync " << static_cast<int>(sync);
        }
}

// Ends of lines have shorter paths.
TEST(MeshTiming, AllReducesTakeWhatTheAnalyticalModelSays) {
  const PlmrDevice device = roomy();
  for (int line = 3; line <= 33; ++line)
    for (const int n : {1, 7, 64})
      for (const WaferAllReduce method : {WaferAllReduce::k_tree, WaferAllReduce::pipeline, WaferAllReduce::ring})
        for (const int phases : {1, 2, 3}) {
          PlmrDevice colourful = device;
          colourful.free_routes.value = 100;
          const AllReduceOptions options{.method = method, .phases = phases};
          const double simulated = simulate_all_reduce(colourful, line, n, options).cycles();
          const double predicted = all_reduce_cost(colourful, line, n, options).cycles();
          // One stage of each phase, over as many hops as its members are apart.
          double slack = 4 + device.beta_cycles.value, apart = 1;
          const int fan = KTree::of(line, phases).fan;
          for (int p = 0; p < phases; ++p, apart *= fan)
            slack += device.beta_cycles.value + std::min(apart, 1.0 * line);
          EXPECT_NEAR(simulated, predicted, slack) << line << " cores, " << static_cast<int>(method) << ", " << phases;
        }
}

TEST(MeshTiming, AllReducesHoldRampsOfAnyLength) {
  PlmrDevice device = roomy();
  device.ramp_cycles.value = 1e6;
  for (const WaferAllReduce method : {WaferAllReduce::k_tree, WaferAllReduce::pipeline, WaferAllReduce::ring})
    for (const WaferSync sync : kSyncs) {
      const AllReduceOptions options{.method = method, .sync = sync};
      const double closed = all_reduce_cost(device, 33, 8, options).cycles();
      // A pipeline's last core waits half a stage less, whose ramps are there and back in rendezvous, twice with
      // barriers; a ring's last chunk is smaller than the others.
      const double ramps = sync == WaferSync::dataflow ? 0 : sync == WaferSync::rendezvous ? 0.5 : 1;
      const double slack = method == WaferAllReduce::pipeline ? ramps * device.ramp_cycles.value + 10
                           : method == WaferAllReduce::ring   ? 2 * device.beta_cycles.value
                                                              : 1e-6;
      EXPECT_NEAR(simulate_all_reduce(device, 33, 8, options).cycles(), closed, slack);
    }
}

TEST(MeshTiming, GemvOnMeshesThatAreNotSquareReducesAlongY) {
  const PlmrDevice device = roomy();
  for (const WaferMesh cores : {WaferMesh{3, 33}, {33, 3}, {7, 5}}) {
    const double simulated = simulate_gemv(device, 400, 300, cores).cycles();
    const double predicted = gemv_cost(device, 400, 300, cores).cycles();
    EXPECT_NEAR(simulated, predicted, 2 * cores.height + 6 * device.beta_cycles.value);
  }
}

// Six vectors are six times the compute and the words of one, over the same hops and stages.
TEST(MeshTiming, ABatchOfVectorsSharesHopsAndStages) {
  PlmrDevice device = roomy();
  device.vector_slice_cycles.value = 5;
  const auto one = gemv_cost(device, 400, 300, {20, 33}), six = gemv_cost(device, 400, 300, {20, 33}, {}, 6);
  for (const char* part : {"compute", "words"}) EXPECT_DOUBLE_EQ(six.cycles(part), 6 * one.cycles(part)) << part;
  for (const char* part : {"hops", "routing stages"}) EXPECT_DOUBLE_EQ(six.cycles(part), one.cycles(part)) << part;
  EXPECT_EQ(six.memory_bytes, one.memory_bytes + 5 * kValueBytes * (13 + 2 * 15));
  const auto simulated = simulate_gemv(device, 400, 300, {20, 33}, {}, 6);
  EXPECT_DOUBLE_EQ(simulated.cycles("compute"), six.cycles("compute"));
  EXPECT_NEAR(simulated.cycles(), six.cycles(), 2 * 33 + 6 * device.beta_cycles.value);  // as one vector's, above
  EXPECT_EQ(simulated.memory_bytes, six.memory_bytes);
}

TEST(MeshTiming, PrefillOfPaddedTilesIsItsFittedForm) {
  constexpr WaferModel kLlama8b{.num_layers = 32,
                                .hidden = 4096,
                                .intermediate = 14336,
                                .num_heads = 32,
                                .num_kv_heads = 8,
                                .head_dim = 128,
                                .vocab = 128256};
  PlmrDevice wse2 = plmr_preset("wse-2");
  wse2.tile_rounding.value = 1;  // the program pads, where the paper's deals tiles out
  for (const int side : {480, 720}) {
    const double simulated = simulate_prefill_layer(wse2, kLlama8b, {side, side}, 4096);
    const double predicted = prefill_layer_cost(wse2, kLlama8b, {side, side}, 4096).cycles();
    EXPECT_NEAR(simulated / predicted, 1, 2e-5) << side;
  }
}

}  // namespace
}  // namespace heddle::mesh
