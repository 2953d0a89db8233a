// The max-plus mesh compared with the discrete-event mesh: the same program, as recurrences over clocks and word by
// word.
#include <gmock/gmock.h>

#include <tuple>
#include <vector>

#include "base/error.h"
#include "wafer/mesh/event_mesh.h"
#include "wafer/mesh/gemv.h"
#include "wafer/mesh/max_plus_mesh.h"

namespace heddle::mesh {
namespace {

static_assert(Mesh<EventMesh>);

// Whole cycles, because the oracle supports no others, and no limits.
PlmrDevice whole_cycles() {
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 1e9;
  device.free_routes.value = 100;
  device.beta_cycles.value = 3;
  device.call_cycles.value = 4;
  device.mac_cycles.value = 1;
  device.vector_slice_cycles.value = 2;
  return device;
}

// Nothing overlaps with compute, so every cycle of communication counts.
PlmrDevice communication_alone() {
  PlmrDevice device = whole_cycles();
  device.call_cycles.value = device.mac_cycles.value = device.vector_slice_cycles.value = 0;
  return device;
}

constexpr double kTileWords = 4;  // of A and of B, as expect_agreement has them

struct OracleCase {
  WaferMesh cores;
  WaferGemm method;
  WaferSync sync;
};

// Words that the alignment of one operand waits for in max-plus, which charges every shift of a core for all its
// places, even if some have arrived before; of the line with the most.
double words_of_places_at_rest(int places, int width, double tile_words) {
  double most = 0;
  for (int line = 0; line < places; line += width) {
    int steps = 0, moves = 0;
    for (int place = line; place < line + width; ++place) {
      const int own = std::min(place, places - place);
      steps = std::max(steps, own);
      moves += own;
    }
    most = std::max(most, (steps * width - moves) * tile_words);
  }
  return most;
}

// Words of the places of a line that go round the other way than most, over links that a natural order's long way
// takes, too.
double words_both_ways(int places, int width, double tile_words) {
  double most = 0;
  for (int line = 0; line < places; line += width) {
    int ahead = 0, back = 0;
    for (int place = line; place < line + width; ++place)
      (place <= places - place ? ahead : back) += std::min(place, places - place);
    most = std::max(most, std::min(ahead, back) * tile_words);
  }
  return most;
}

// The allowed difference of the two.
double gemm_bound(const PlmrDevice& device, const OracleCase& c) {
  const double alpha = device.alpha_cycles.value, beta = device.beta_cycles.value, ramp = device.ramp_cycles.value;
  const int places = Grid::square(c.cores, LineOrder::natural).columns, sides = c.cores.width + c.cores.height;
  switch (c.method) {
    case WaferGemm::mesh_gemm:  // alignment: max-plus lets a line's cores go on when its last one may
    case WaferGemm::cannon: {
      double slack = 0;
      for (const int side : {c.cores.width, c.cores.height})
        slack = std::max(slack, words_of_places_at_rest(places, places / side, kTileWords) +
                                    words_both_ways(places, places / side, kTileWords));
      return sides * alpha + slack;
    }
    case WaferGemm::gemm_t:  // max-plus charges a stage's set-up to every step's sum, the oracle to the first alone; a
                             // late sum keeps its buffer, of two
      return 2 * places * (alpha + beta + ramp) + sides * (alpha + beta);
    case WaferGemm::summa:  // a root that stays the root for several steps does not wait for ramps in the oracle
      return c.cores.width == c.cores.height ? 0.5 : places * ramp;
    case WaferGemm::all_gather:  // words come in before or after the calls of a step
      return 0.5;
  }
  return 0;
}

void expect_agreement(const PlmrDevice& device, const OracleCase& c) {
  const Grid grid = Grid::square(c.cores, line_order(c.method));
  const GemmSize size{grid.columns * 4, grid.columns * 2, grid.columns * 4 - 1};  // tiles of whole words
  const auto run = [&](auto&& mesh) {
    run_gemm(mesh, allocate_gemm(mesh, size, c.method), c.method);
    return static_cast<double>(mesh.cycles());
  };
  EXPECT_NEAR(run(MaxPlusMesh(device, grid, {.sync = c.sync})), run(EventMesh(device, grid, c.sync)),
              gemm_bound(device, c))
      << c.cores.width << " x " << c.cores.height << ", method " << static_cast<int>(c.method) << ", sync "
      << static_cast<int>(c.sync);
}

class Oracle : public ::testing::TestWithParam<std::tuple<WaferGemm, WaferSync>> {};

TEST_P(Oracle, AgreesOnEveryGemm) {
  const auto [method, sync] = GetParam();
  for (const PlmrDevice& device : {whole_cycles(), communication_alone()})
    for (const WaferMesh cores : {WaferMesh{3, 3}, {4, 4}, {5, 5}, {8, 8}, {9, 9}, {6, 4}, {3, 5}, {4, 3}})
      expect_agreement(device, {cores, method, sync});
}

INSTANTIATE_TEST_SUITE_P(Gemms, Oracle,
                         ::testing::Combine(::testing::Values(WaferGemm::mesh_gemm, WaferGemm::gemm_t, WaferGemm::summa,
                                                              WaferGemm::cannon, WaferGemm::all_gather),
                                            ::testing::Values(WaferSync::dataflow, WaferSync::rendezvous,
                                                              WaferSync::barrier)));

TEST(OracleMesh, AgreesOnTheLargestMeshItKnows) {
  expect_agreement(communication_alone(), {{32, 32}, WaferGemm::mesh_gemm, WaferSync::dataflow});
  expect_agreement(communication_alone(), {{32, 32}, WaferGemm::cannon, WaferSync::rendezvous});
}

// Words that two phases of a tree send over the same link wait for each other, which max-plus ignores: at most (phases
// - 1) times the vector. An odd vector's last word counts as whole.
TEST(OracleMesh, AgreesOnEveryAllReduce) {
  const PlmrDevice device = whole_cycles();
  for (const int line : {3, 4, 7, 8, 9, 25, 32})
    for (const int values : {1, 16})
      for (const auto& [method, most_phases] :
           {std::pair{WaferAllReduce::k_tree, 3}, {WaferAllReduce::pipeline, 1}, {WaferAllReduce::ring, 1}})
        for (int phases = 1; phases <= most_phases; ++phases) {
          const AllReduceOptions options{.method = method, .phases = phases};
          const auto run = [&](auto&& mesh) {
            mesh.all_reduce(mesh.allocate("sum", 1, values, Buffers::two), Axis::y, Reduction::sum, options);
            return static_cast<double>(mesh.cycles());
          };
          const Grid grid = Grid::of_cores({3, line});
          const double played = run(EventMesh(device, grid)), predicted = run(MaxPlusMesh(device, grid));
          EXPECT_GE(played, predicted - 1) << line << " cores, method " << static_cast<int>(method);
          EXPECT_LE(played, predicted + 1 + (phases - 1) * values)
              << line << " cores, method " << static_cast<int>(method) << ", K = " << phases;
        }
}

TEST(OracleMesh, AgreesOnAGemvOfOneVectorAndOfABatch) {
  for (const WaferMesh cores : {WaferMesh{9, 9}, {5, 16}})
    for (const int batch : {1, 6}) {
      const auto run = [&](auto&& mesh) {
        mesh_gemv(mesh, allocate_gemv(mesh, 100, 60, Axis::y, batch));
        return static_cast<double>(mesh.cycles());
      };
      const int values = batch * (60 / cores.width + 1);
      EXPECT_NEAR(run(EventMesh(whole_cycles(), Grid::of_cores(cores))),
                  run(MaxPlusMesh(whole_cycles(), Grid::of_cores(cores))), 1 + values);
    }
}

// Every row of cores sends to every other, all to one, and each the same row to all, once for each direction. Max-plus
// ignores words queued behind other rows: a difference of at most the longest path's stages, and a word each.
TEST(OracleMesh, AgreesOnExchanges) {
  const PlmrDevice device = whole_cycles();
  for (const WaferMesh cores : {WaferMesh{3, 4}, {3, 9}, {4, 16}}) {
    std::vector<RowMove> all_to_all, to_one, multicast;
    for (int i = 0; i < cores.height; ++i)
      for (int j = 0; j < cores.height; ++j) {
        if (i != j) all_to_all.push_back({i, j, j, i});
        multicast.push_back({i, 0, j, i});
        if (j == 0) to_one.push_back({i, 0, 2, i});
      }
    for (const auto& moves : {all_to_all, to_one, multicast})
      for (const int columns : {4, 32}) {
        const auto run = [&](auto&& mesh) {
          const Tile from = mesh.allocate("from", cores.height, columns, Buffers::one);
          const Tile into = mesh.allocate("into", cores.height, columns, Buffers::one);
          mesh.exchange(from, into, Axis::y, moves);
          return static_cast<double>(mesh.cycles());
        };
        const Grid grid = Grid::of_cores(cores);
        const double played = run(EventMesh(device, grid)), predicted = run(MaxPlusMesh(device, grid));
        const double stages = cores.height * (device.alpha_cycles.value + device.beta_cycles.value + 1);
        EXPECT_NEAR(played, predicted, stages) << cores.height << " rows, " << moves.size() << " moves of " << columns;
      }
  }
}

TEST(OracleMesh, KnowsNoLargerMesh) {
  EXPECT_THROW(EventMesh(whole_cycles(), Grid::of_cores({33, 3})), InvalidArgument);
}

}  // namespace
}  // namespace heddle::mesh
