// Memory and routes that programs need on a core, and the errors when a core has less.
#include <gmock/gmock.h>

#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PlmrDevice wse2() {
  return plmr_preset("wse-2");
}

TEST(CoreBudget, RefusesATileThatDoesNotFitWithCorePhaseNeedAndBudget) {
  EXPECT_THAT(
      [] {
        simulate_gemm(wse2(), {4096, 4096, 4096}, {720, 720}, WaferGemm::all_gather);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("core ("), HasSubstr("all-gather"), HasSubstr("72 bytes"),
                                      HasSubstr("49152"), HasSubstr("24 too few"), HasSubstr("720 x 720"))));
  EXPECT_THAT(
      [] {
        simulate_gemv(wse2(), 4096, 4096, {3, 3});
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("core ("), HasSubstr("bytes"), HasSubstr("49152"))));
}

TEST(CoreBudget, RefusesRoutesBeyondTheFreeOnesWithCorePhaseNeedAndBudget) {
  CoreBudget budget(wse2(), Grid::of_cores({720, 720}));
  budget.phase("decode");
  const AllReduceOptions three{.phases = 3};
  budget.take_all_reduce(Axis::x, three);
  EXPECT_EQ(budget.routes(), 15);
  EXPECT_THAT([&] { budget.take_all_reduce(Axis::y, three); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("core (360, 360) of 720 x 720"), HasSubstr("decode"),
                                              HasSubstr("14 routes"), HasSubstr("15 in use"), HasSubstr("21 free"),
                                              HasSubstr("K = 2 is the largest"))));
}

TEST(CoreBudget, CountsRoutesOnceAndMemoryAtItsFullest) {
  CoreBudget budget(wse2(), Grid::of_cores({9, 9}));
  budget.take_shift(Axis::x);
  budget.take_shift(Axis::x);
  EXPECT_EQ(budget.routes(), 3);
  const Tile large = budget.allocate("large", 10, 10, Buffers::two);
  budget.release(large);
  budget.allocate("small", 10, 10, Buffers::one);
  EXPECT_EQ(budget.memory_bytes(), 400);
  EXPECT_THROW(budget.allocate("none", 0, 1, Buffers::one), InvalidArgument);
}

// Constants of wafer_cost.h.
TEST(CoreBudget, CountsTheRoutesOfThePublishedPrograms) {
  for (int cores = 3; cores <= 64; ++cores) {
    EXPECT_EQ(shift_routes(cores, LineOrder::interleaved), 3) << cores;
    EXPECT_EQ(shift_routes(cores, LineOrder::natural), 3) << cores;
  }
  for (const int phases : {1, 2, 3}) EXPECT_EQ(all_reduce_routes(720, {.phases = phases}), 4 * phases + 2);
  EXPECT_EQ(all_reduce_routes(720, {.method = WaferAllReduce::pipeline}), 4);
  EXPECT_EQ(all_reduce_routes(720, {.method = WaferAllReduce::ring}), 3);
  for (const WaferGemm method : {WaferGemm::mesh_gemm, WaferGemm::gemm_t, WaferGemm::summa, WaferGemm::cannon}) {
    const WaferCost counted = simulate_gemm(wse2(), {90, 90, 90}, {9, 9}, method);
    EXPECT_EQ(counted.routes, gemm_cost(wse2(), {90, 90, 90}, {9, 9}, method).routes);
    EXPECT_EQ(counted.memory_bytes, gemm_cost(wse2(), {90, 90, 90}, {9, 9}, method).memory_bytes);
  }
}

// What a core does in a colour of the K-tree's first phase, if it follows from its parity and the colour alone, serves for
// transfers between all neighbours, too: no core would have to be sender and receiver, or to pass what comes.
TEST(CoreBudget, ATreesFirstPhaseHasRoutesBetweenNeighbours) {
  enum class Role : std::uint8_t { none, sends, receives };
  for (int cores = 3; cores <= 64; ++cores) {
    const auto tree = schedule::KTree::of(cores, 2);
    const auto at = [](int core) { return static_cast<std::size_t>(core); };
    // [direction][parity of the sender][core]
    std::vector<std::vector<std::vector<Role>>> roles(2, {2, std::vector<Role>(at(cores), Role::none)});
    std::set<std::pair<int, int>> colours;
    const auto give = [&](int up, int parity, int core, Role role) {
      Role& has = roles[at(up)][at(parity)][at(core)];
      EXPECT_TRUE(has == Role::none || has == role) << cores << " cores, core " << core;
      has = role;
    };
    for (int core = 0; core < cores; ++core) {  // the tree: each but the root sends one hop towards it
      const int root = tree.root_member(0, core / tree.fan);
      if (core == root) continue;
      const int up = core < root ? 1 : 0;
      colours.emplace(up, core % 2);
      give(up, core % 2, core, Role::sends);
      give(up, core % 2, up == 1 ? core + 1 : core - 1, Role::receives);
    }
    for (int core = 0; core < cores; ++core) {  // all neighbours, in both directions
      if (core > 0) give(0, core % 2, core, Role::sends), give(0, core % 2, core - 1, Role::receives);
      if (core + 1 < cores) give(1, core % 2, core, Role::sends), give(1, core % 2, core + 1, Role::receives);
    }
    EXPECT_EQ(neighbour_routes(cores, {.phases = 2}), 4 - std::ssize(colours)) << cores;
  }
  for (const int cores : {240, 360, 375, 420, 660, 720, 750}) EXPECT_EQ(neighbour_routes(cores, {.phases = 2}), 0);
  EXPECT_EQ(neighbour_routes(360, {.method = WaferAllReduce::ring}), 4);
  // Decode's sums on both axes, and what its neighbours pass on: all 21 routes and no more.
  CoreBudget budget(wse2(), Grid::of_cores({360, 360}));
  for (const Axis axis : {Axis::x, Axis::y}) budget.take_all_reduce(axis, {});
  for (const Axis axis : {Axis::x, Axis::y}) budget.take_neighbours(axis, {});
  EXPECT_EQ(budget.routes(), 21);
}

// K = 3 along x leaves 8 of 21 routes for y, where K = 1 takes 6; but K = 2 along both is the advice.
TEST(CoreBudget, NamesTheLargestKOfBothAxes) {
  CoreBudget budget(wse2(), Grid::of_cores({360, 360}));
  budget.take_all_reduce(Axis::x, {.phases = 3});
  EXPECT_THAT([&] { budget.take_all_reduce(Axis::y, {.phases = 3}); },
              ThrowsMessage<InputError>(HasSubstr("K = 2 is the largest that does")));
  CoreBudget relayed(wse2(), Grid::of_cores({360, 360}));
  relayed.take_exchange(Axis::x);
  relayed.take_all_reduce(Axis::x, {.phases = 2});
  EXPECT_THAT([&] { relayed.take_all_reduce(Axis::y, {.phases = 2}); },
              ThrowsMessage<InputError>(HasSubstr("K = 1 is the largest that does")));
}

TEST(CoreBudget, RefusesMeshesThatAreNone) {
  for (const WaferMesh cores : {WaferMesh{2, 9}, {9, 2}, {-1, 3}, {0, 0}}) {
    EXPECT_THAT(
        [&] {
          simulate_gemm(wse2(), {8, 8, 8}, cores, WaferGemm::summa);
        },
        ThrowsMessage<InputError>(HasSubstr("3 or more")));
    EXPECT_THAT([&] { simulate_gemv(wse2(), 8, 8, cores); }, ThrowsMessage<InputError>(HasSubstr("3 or more")));
  }
  EXPECT_THAT(
      [] {
        simulate_gemm(wse2(), {8, 8, 8}, {1000, 1000}, WaferGemm::mesh_gemm);
      },
      ThrowsMessage<InputError>(HasSubstr("750 x 994")));
  EXPECT_THROW(simulate_gemm(wse2(), {0, 8, 8}, {3, 3}, WaferGemm::mesh_gemm), InvalidArgument);
}

// WaferLLM 5.1 and 6.1: what grows with the line and what does not.
TEST(Compliance, IsAsThePaperStatesIt) {
  const std::vector<ComplianceRow> gemm = gemm_compliance(wse2(), 720), twice = gemm_compliance(wse2(), 360);
  ASSERT_EQ(gemm.size(), 5u);
  const auto expect_row = [](const ComplianceRow& row, const char* program, const char* complies) {
    EXPECT_EQ(row.program, program);
    EXPECT_EQ(row.complies, complies) << program;
  };
  expect_row(gemm[0], "all-gather GEMM", "");
  expect_row(gemm[1], "SUMMA", "M");
  expect_row(gemm[2], "Cannon", "M R");
  expect_row(gemm[3], "GEMM-T", "M R");
  expect_row(gemm[4], "MeshGEMM", "L M R");
  EXPECT_EQ(gemm[0].paths, 720);
  EXPECT_EQ(gemm[2].hops, 719);
  EXPECT_EQ(gemm[4].hops, 2);
  EXPECT_EQ(gemm[4].hops, twice[4].hops);
  EXPECT_EQ(gemm[4].memory_tiles, 5);

  const std::vector<ComplianceRow> sums = all_reduce_compliance(wse2(), 720);
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_EQ(sums[0].hops, 2 * 719);
  EXPECT_EQ(sums[0].stages, 719);
  EXPECT_EQ(sums[1].stages, 2 * 719);
  EXPECT_LE(sums[2].stages, 2 * 27 / 2 + 1);  // K/2 N^(1/K), rounded up
  EXPECT_EQ(sums[2].paths, 3);
  EXPECT_EQ(sums[2].complies, "L M R");
  EXPECT_EQ(all_reduce_compliance(wse2(), 720, 3)[2].complies, "L M");
}

}  // namespace
}  // namespace heddle::mesh
