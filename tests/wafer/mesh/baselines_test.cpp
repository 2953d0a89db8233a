// T10- and Ladder-like programs: their values against float64, their words on the event mesh against the words counted on
// links, and their compliance.
#include "wafer/mesh/baselines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/error.h"
#include "wafer/mesh/baseline_programs.h"
#include "wafer/mesh/event_mesh.h"
#include "wafer/mesh/load_mesh.h"

namespace heddle::mesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const PlmrDevice& baseline_device() {
  static const PlmrDevice device = plmr_preset("wse-2");
  return device;
}

// Multiples of 1/8 to 4 in size: float32 sums of these tests are exact, in any order.
double number_at(int matrix, std::int64_t row, std::int64_t column) {
  return static_cast<double>((row * 37 + column * 101 + matrix * 13) % 65 - 32) / 8;
}

struct Tiled {
  int matrix;
  std::int64_t rows, columns;
  double at(std::int64_t r, std::int64_t c) const { return r < rows && c < columns ? number_at(matrix, r, c) : 0; }
};

// Fills a core's tile with block (i, k).
void fill(EventMesh& mesh, Tile tile, int core, const Tiled& of, int i, int k) {
  const int width = mesh.grid().cores.width;
  for (int r = 0; r < tile.rows; ++r)
    for (int c = 0; c < tile.columns; ++c)
      mesh.value(tile, core / width, core % width, r, c) =
          static_cast<float>(of.at(std::int64_t{i} * tile.rows + r, std::int64_t{k} * tile.columns + c));
}

void expect_product(EventMesh& mesh, Tile tile, int core, const GemmSize& size, int i, int j) {
  const int width = mesh.grid().cores.width;
  const Tiled a{0, size.m, size.k}, b{1, size.k, size.n};
  for (int r = 0; r < tile.rows; ++r)
    for (int c = 0; c < tile.columns; ++c) {
      double sum = 0;
      const std::int64_t row = std::int64_t{i} * tile.rows + r, column = std::int64_t{j} * tile.columns + c;
      for (std::int64_t k = 0; k < size.k; ++k) sum += a.at(row, k) * b.at(k, column);
      EXPECT_EQ(mesh.value(tile, core / width, core % width, r, c), sum) << "block " << i << ", " << j;
    }
}

struct BaselineCase {
  WaferMesh cores;
  GemmSize size;
};
const BaselineCase kBaselineCases[] = {
    {{3, 3}, {3, 3, 3}}, {{4, 4}, {9, 10, 7}}, {{5, 3}, {8, 14, 11}}, {{3, 7}, {15, 13, 4}}, {{6, 4}, {10, 11, 13}}};

TEST(MeshBaselines, T10MultipliesAsFloat64Does) {
  for (const auto& [cores, size] : kBaselineCases) {
    SCOPED_TRACE(testing::Message() << cores.width << " x " << cores.height);
    EventMesh mesh(baseline_device(), Grid::of_cores(cores));
    const T10Gemm t = allocate_t10_gemm(mesh, size);
    for (int i = 0; i < cores.height; ++i)
      for (int j = 0; j < cores.width; ++j) {
        const auto fill_pieces = [&](Axis axis, int other, const Slots& slots) {
          const int index = axis == Axis::x ? j : i;
          for (int piece = t.first(axis, index); piece < t.first(axis, index + 1); ++piece) {
            const int kappa = piece + other, k = kappa % t.shape.steps;
            const Tile tile = in_turn(slots, kappa);
            if (axis == Axis::x)
              fill(mesh, tile, t.core(i, j), {0, size.m, size.k}, i, k);
            else
              fill(mesh, tile, t.core(i, j), {1, size.k, size.n}, k, j);
          }
        };
        fill_pieces(Axis::x, t.first(Axis::y, i), t.a);
        fill_pieces(Axis::y, t.first(Axis::x, j), t.b);
      }
    t10_gemm(mesh, t, 5);
    for (int i = 0; i < cores.height; ++i)
      for (int j = 0; j < cores.width; ++j) expect_product(mesh, t.c, t.core(i, j), size, i, j);
  }
}

TEST(MeshBaselines, LadderMultipliesAsFloat64Does) {
  for (const auto& [cores, size] : kBaselineCases) {
    SCOPED_TRACE(testing::Message() << cores.width << " x " << cores.height);
    EventMesh mesh(baseline_device(), Grid::of_cores(cores));
    const LadderGemm t = allocate_ladder_gemm(mesh, size);
    for (int k = 0; k < t.shape.steps; ++k) {
      for (int i = 0; i < cores.height; ++i) {
        const LadderGemm::Place at = t.a_place(i, k);
        fill(mesh, in_turn(t.a_home, at.slot), at.core, {0, size.m, size.k}, i, k);
      }
      for (int j = 0; j < cores.width; ++j) {
        const LadderGemm::Place at = t.b_place(k, j);
        fill(mesh, in_turn(t.b_home, at.slot), at.core, {1, size.k, size.n}, k, j);
      }
    }
    ladder_gemm(mesh, t, 5);
    for (int core = 0; core < cores.width * cores.height; ++core)
      expect_product(mesh, t.c_home, t.c_place(core).core, size, core / cores.width, core % cores.width);
  }
}

// Sums over the rows of cores, of parts that differ.
TEST(MeshBaselines, SumsAreThoseOfTheColumns) {
  for (const WaferMesh cores : {WaferMesh{3, 3}, {5, 3}, {4, 6}}) {
    const FlatSpace space = FlatSpace::of(cores);
    const auto at = [&](EventMesh& mesh, Tile tile, int core) -> float& {
      return mesh.value(tile, core / cores.width, core % cores.width, 0, 2);
    };
    const auto sum_of = [&](int j) {
      double sum = 0;
      for (int i = 0; i < cores.height; ++i) sum += number_at(2, i, j);
      return sum;
    };
    EventMesh t10(baseline_device(), Grid::of_cores(cores)), ladder(baseline_device(), Grid::of_cores(cores));
    const auto allocate = [](EventMesh& mesh) { return mesh.allocate("vector", 1, 3, Buffers::one); };
    const Tile part = allocate(t10), total = allocate(t10);
    const LadderSum sum{allocate(ladder), allocate(ladder), allocate(ladder), allocate(ladder)};
    for (int port = 0; port < cores.width * cores.height; ++port) {
      const auto value = static_cast<float>(number_at(2, port / cores.width, port % cores.width));
      at(t10, part, space.core(port)) = value;
      at(ladder, sum.part, port) = value;
    }
    t10_sum(t10, space, part, total);
    ladder_sum(ladder, space, sum);
    for (int port = 0; port < cores.width * cores.height; ++port)
      EXPECT_EQ(at(t10, part, space.core(port)), sum_of(port % cores.width)) << port;
    for (int j = 0; j < cores.width; ++j) EXPECT_EQ(at(ladder, sum.total_home, space.core(space.cores + j)), sum_of(j));
  }
}

// One move alone: a ramp, and for each hop alpha and a stage; the last of its words. A load asks first.
TEST(MeshBaselines, AMoveAloneTakesItsPathAndItsWords) {
  PlmrDevice device = baseline_device();
  device.beta_cycles.value = 8;
  for (const auto& [from, to] : {std::pair{0, 1}, {0, 34}, {34, 3}, {27, 8}})
    for (const int values : {1, 2, 14})
      for (const Access access : {Access::send, Access::load}) {
        EventMesh events(device, Grid::of_cores({7, 5}));
        LoadMesh links(device, {7, 5}, 1);
        const auto cycles = [&](auto& mesh) {
          const Tile source = mesh.allocate("source", 1, values, Buffers::one);
          const Tile into = mesh.allocate("into", 1, values, Buffers::one);
          mesh.transfer(1, access, Arrival::replace, [&](std::int64_t) { return TileMove{from, source, to, into}; });
          if constexpr (requires { mesh.cycles(); })
            return static_cast<double>(mesh.cycles());
          else
            return mesh.transfer_cycles() - static_cast<double>(mesh.most_words());  // without waiting for others
        };
        const double ways = access == Access::load ? 2 : 1;  // a word's way ends in the cycle before the next begins
        EXPECT_NEAR(cycles(events), cycles(links), ways) << from << " to " << to << ", " << values << " values";
      }
}

// Whole cycles, and no cost but transfers: the event mesh has no others.
PlmrDevice device_of_transfers() {
  PlmrDevice device = without_fitted_costs(baseline_device());
  device.beta_cycles.value = 8;
  return device;
}

// A transfer's busiest link carries a word a cycle, and its longest path has to be gone: it takes no less than either, so
// neither does the event mesh, step by step. LoadMesh charges both, one after the other, which is what it can be too long
// by: at most the shorter of the two. What it may be too short by is measured: words that wait on more than one link.
TEST(MeshBaselines, WordsOnLinksPredictTheEventMesh) {
  const PlmrDevice device = device_of_transfers();
  double least = 1, most = 1, most_from_16 = 1;
  const auto compare = [&](double played, const LoadMesh& links, const std::string& of) {
    EXPECT_GE(played, links.least_transfer_cycles()) << of;
    if (links.grid().cores.width >= 16) {  // so the bound is nearly what the words take
      EXPECT_LT(played, 1.1 * links.least_transfer_cycles()) << of;
      most_from_16 = std::max(most_from_16, links.transfer_cycles() / played);
    }
    const double ratio = links.transfer_cycles() / played;
    least = std::min(least, ratio);
    most = std::max(most, ratio);
  };
  struct Case {
    WaferMesh cores;
    int tile;
  };
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder})
    for (const auto& [cores, tile] : {Case{{4, 4}, 12},
                                      {{8, 8}, 1},
                                      {{8, 8}, 12},
                                      {{9, 5}, 6},
                                      {{5, 9}, 6},
                                      {{12, 12}, 4},
                                      {{16, 16}, 1},
                                      {{16, 16}, 4},
                                      {{32, 32}, 1}}) {
      const std::int64_t n = std::int64_t{tile} * std::max(cores.width, cores.height);
      const std::string of = fmt::format("{} x {}, tiles of {}, {}", cores.width, cores.height, tile,
                                         method == WaferMethod::t10 ? "T10" : "Ladder");
      const GemmSize size{n, n, n};
      const FlatSpace space = FlatSpace::of(cores);
      const auto gemm = [&, method = method](auto& mesh) {
        if (method == WaferMethod::t10)
          t10_gemm(mesh, allocate_t10_gemm(mesh, size), 0);
        else
          ladder_gemm(mesh, allocate_ladder_gemm(mesh, size), 0);
      };
      const auto sum = [&, method = method, tile = tile](auto& mesh) {
        const auto vector = [&] { return mesh.allocate("vector", 1, tile, Buffers::one); };
        const LadderSum tiles{vector(), vector(), vector(), vector()};
        if (method == WaferMethod::t10)
          t10_sum(mesh, space, tiles.part, tiles.total);
        else
          ladder_sum(mesh, space, tiles);
      };
      EventMesh gemm_words(device, Grid::of_cores(cores)), sum_words(device, Grid::of_cores(cores));
      LoadMesh gemm_links(device, cores, 1000), sum_links(device, cores, 1);
      if (cores.width <=
          16) {  // with 32 x 32 cores a GEMM plays millions of messages for 3 s, and its ratio is no extreme
        gemm(gemm_words), gemm(gemm_links);
        compare(static_cast<double>(gemm_words.cycles()), gemm_links, of);
      }
      sum(sum_words), sum(sum_links);
      compare(static_cast<double>(sum_words.cycles()), sum_links, of + ", sum");
    }
  // What the program says of itself.
  EXPECT_NEAR(least, kLeastOverPlayed, 0.001);
  EXPECT_NEAR(most, kMostOverPlayed, 0.001);
  EXPECT_NEAR(most_from_16, kMostOverPlayedFrom16, 0.001);
}

// Ladder's steps differ: 24 evenly spaced ones stand for all within a per cent, and T10's are all alike.
TEST(MeshBaselines, CountedStepsStandForTheOthers) {
  for (const WaferMesh cores : {WaferMesh{60, 60}, {50, 72}}) {
    const GemmSize size{360, 300, 420};
    const double all = count_baseline_gemm(baseline_device(), size, cores, WaferMethod::ladder, 1000).cycles();
    EXPECT_NEAR(count_baseline_gemm(baseline_device(), size, cores, WaferMethod::ladder).cycles() / all, 1, 0.01);
    const auto t10 = [&](int steps) {
      LoadMesh mesh(baseline_device(), cores, steps);
      t10_gemm(mesh, allocate_t10_gemm(mesh, size), 5);
      return mesh.transfer_cycles();
    };
    EXPECT_NEAR(t10(1), t10(1000), 1e-9 * t10(1));
  }
}

// The constants that were fitted to T10's and Ladder's published figures are the analytical model's alone.
TEST(MeshBaselines, SimulationTakesNothingThatWasFittedToThem) {
  PlmrDevice scaled = baseline_device();
  scaled.baseline_scale.value = 7;
  const GemmSize size{96, 96, 96};
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder}) {
    EXPECT_EQ(simulate_baseline_gemm(scaled, size, {8, 8}, method).cycles(),
              simulate_baseline_gemm(baseline_device(), size, {8, 8}, method).cycles());
    EXPECT_NE(gemm_cost(scaled, size, {8, 8}, method).cycles(),
              gemm_cost(baseline_device(), size, {8, 8}, method).cycles());
  }
}

// Played to 32 cores a side, above counted on links, of which the cost says both, and how many steps stand for all. What
// compute and stages add is analytical.
TEST(MeshBaselines, SayWhetherTheirWordsWerePlayedOrCounted) {
  const GemmSize size{64, 64, 64};
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder}) {
    const char* part = method == WaferMethod::t10 ? "exchange" : "remote reads and writes";
    for (const auto& [cost, basis] :
         {std::pair{simulate_baseline_gemm(baseline_device(), size, {32, 4}, method), Basis::simulated},
          {simulate_baseline_gemv(baseline_device(), 64, 64, {32, 4}, method), Basis::simulated},
          {simulate_baseline_gemm(baseline_device(), size, {33, 4}, method), Basis::counted},
          {simulate_baseline_gemv(baseline_device(), 64, 64, {4, 33}, method), Basis::counted}}) {
      EXPECT_EQ(cost.bases(part), basis | Basis::analytical);
      EXPECT_EQ(cost.bases("compute"), Basis::analytical);
      EXPECT_EQ(cost.at_least > 0, basis == Basis::counted);
      EXPECT_LT(cost.at_least, cost.cycles());
    }
    EXPECT_FALSE(counted_gemm_steps({32, 4}, method).has_value());
    const auto steps = counted_gemm_steps({4, 33}, method);
    ASSERT_TRUE(steps.has_value());
    EXPECT_EQ(steps->all, 33);
    EXPECT_EQ(steps->counted, method == WaferMethod::t10 ? 1 : kCountedSteps);
  }
}

// What is simulated or counted has no fitted constant: of an operation, a call, a stage, a value, nor a baseline's own.
TEST(MeshBaselines, WhatIsSimulatedOrCountedHoldsNoFittedConstant) {
  PlmrDevice dear = baseline_device();
  for (Constant PlmrDevice::*constant : kFittedConstants) (dear.*constant).value *= 3;
  dear.vector_slice_cycles.value = 5;
  dear.baseline_scale.value = 3;
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder})
    for (const WaferMesh cores : {WaferMesh{9, 6}, {40, 35}}) {
      const auto gemm = [&](const PlmrDevice& d) { return simulate_baseline_gemm(d, {96, 96, 96}, cores, method); };
      const auto gemv = [&](const PlmrDevice& d) { return simulate_baseline_gemv(d, 96, 96, cores, method); };
      for (const auto& [cheap, expensive] :
           {std::pair{gemm(baseline_device()), gemm(dear)}, {gemv(baseline_device()), gemv(dear)}}) {
        EXPECT_GT(cheap.hops_and_words(), 0);
        EXPECT_DOUBLE_EQ(cheap.hops_and_words(), expensive.hops_and_words());
        EXPECT_LT(cheap.cycles(Basis::analytical), expensive.cycles(Basis::analytical));
      }
    }
}

// Of a layer, what is counted has no element-wise cost and no residual: those parts say what they are.
TEST(MeshBaselines, ALayersFittedPartsAreApartFromWhatWasCounted) {
  constexpr WaferModel kSmall{.num_layers = 2,
                              .hidden = 256,
                              .intermediate = 512,
                              .num_heads = 8,
                              .num_kv_heads = 4,
                              .head_dim = 32,
                              .vocab = 512};
  PlmrDevice dear = baseline_device();
  dear.value_cycles.value *= 3;
  dear.decode_serial_cycles.value *= 3;
  dear.baseline_scale.value = 7;
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder}) {
    const auto layer = [&](const PlmrDevice& device, WaferPhase phase) {
      return count_baseline_layer(device, kSmall, {40, 40}, 128, phase, method);
    };
    const WaferCost prefill = layer(baseline_device(), WaferPhase::prefill);
    EXPECT_EQ(prefill.bases(), Basis::counted | Basis::analytical);
    EXPECT_EQ(prefill.bases("compute"), Basis::analytical);
    EXPECT_DOUBLE_EQ(layer(dear, WaferPhase::prefill).cycles(), prefill.cycles());
    const WaferCost decode = layer(baseline_device(), WaferPhase::decode), other = layer(dear, WaferPhase::decode);
    EXPECT_EQ(decode.bases(), Basis::counted | Basis::analytical | Basis::fitted);
    EXPECT_GT(decode.cycles(Basis::counted), 0);
    EXPECT_DOUBLE_EQ(decode.cycles(Basis::counted), other.cycles(Basis::counted));
    EXPECT_DOUBLE_EQ(decode.cycles(Basis::fitted), baseline_device().decode_serial_cycles.value);
    EXPECT_LT(decode.cycles(Basis::analytical), other.cycles(Basis::analytical));
  }
}

TEST(MeshBaselines, MemoryAndRoutesAreTheAnalyticalModels) {
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder})
    for (const WaferMesh cores : {WaferMesh{7, 7}, {40, 24}, {24, 40}})
      for (const std::int64_t n : {1, 37, 256}) {
        const WaferCost gemm = gemm_cost(baseline_device(), {n, n, n}, cores, method);
        const WaferCost counted = count_baseline_gemm(baseline_device(), {n, n, n}, cores, method, 1);
        EXPECT_EQ(counted.routes, gemm.routes);
        EXPECT_DOUBLE_EQ(counted.cycles("compute") / gemm.cycles("compute"), 1);
        EXPECT_DOUBLE_EQ(counted.memory_bytes, gemm.memory_bytes) << n;
        EXPECT_DOUBLE_EQ(count_baseline_gemv(baseline_device(), n, n, cores, method).memory_bytes,
                         gemv_cost(baseline_device(), n, n, cores, method).memory_bytes);
      }
}

TEST(MeshBaselines, NeighbouringAddressesAreFarApartAndMeetEveryCoreOnce) {
  for (const WaferMesh cores : {WaferMesh{3, 3}, {5, 7}, {32, 24}, {90, 60}}) {
    const FlatSpace space = FlatSpace::of(cores);
    std::set<int> met;
    double hops = 0;
    for (std::int64_t address = 0; address < space.cores; ++address) {
      const int here = space.core(address), next = space.core(address + 1);
      met.insert(here);
      hops += std::abs(here % cores.width - next % cores.width) + std::abs(here / cores.width - next / cores.width);
      EXPECT_EQ(space.slot(address), 0);
      EXPECT_EQ(space.slot(address + space.cores), 1);
      EXPECT_EQ(space.core(address + space.cores), here);
    }
    EXPECT_EQ(static_cast<std::int64_t>(met.size()), space.cores);
    EXPECT_GT(hops / static_cast<double>(space.cores), 0.3 * cores.height);
  }
}

// Counted, not stated: paths and hops grow with the mesh, memory does not.
TEST(MeshBaselines, ComplianceIsCountedFromThePrograms) {
  const auto small = baseline_compliance(baseline_device(), 30), large = baseline_compliance(baseline_device(), 90);
  for (std::size_t i = 0; i < small.size(); ++i) {
    EXPECT_GT(large[i].hops, 2.5 * small[i].hops) << small[i].program;
    EXPECT_GT(large[i].paths, 2 * small[i].paths) << small[i].program;
    EXPECT_EQ(large[i].complies, "M") << small[i].program;
  }
  PlmrDevice many_routes = baseline_device();
  many_routes.free_routes.value = 1e6;
  for (const ComplianceRow& row : baseline_compliance(many_routes, 30)) EXPECT_EQ(row.complies, "M R") << row.program;
}

TEST(MeshBaselines, RefuseWhatACoreHasNot) {
  EXPECT_THAT(
      [] {
        simulate_baseline_gemm(baseline_device(), {4096, 4096, 4096}, {9, 9}, WaferMethod::ladder);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("Ladder-like GEMM"), HasSubstr("core (0, 0)"), HasSubstr("49152"))));
  EXPECT_THAT(
      [] {
        simulate_baseline_gemv(baseline_device(), 8, 8, {2, 9}, WaferMethod::t10);
      },
      ThrowsMessage<InputError>(HasSubstr("3 or more")));
}

}  // namespace
}  // namespace heddle::mesh
