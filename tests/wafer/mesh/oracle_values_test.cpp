// The values carried by the words of the discrete-event mesh, after links, queues and buffers, compared with float64
// and with the mesh that computes.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "wafer/mesh/event_mesh.h"
#include "wafer/mesh/gemv.h"
#include "wafer/mesh/value_mesh.h"

namespace heddle::mesh {
namespace {

// Times that delay words: only links take long, so that buffers are needed while they are still in use.
PlmrDevice hurried_device() {
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 1e9;
  device.free_routes.value = 100;
  device.beta_cycles.value = 1;
  device.call_cycles.value = device.mac_cycles.value = device.vector_slice_cycles.value = 0;
  return device;
}

PlmrDevice unhurried_device() {
  PlmrDevice device = hurried_device();
  device.call_cycles.value = 7;
  device.mac_cycles.value = 2;
  return device;
}

// Of any shape, multiples of 1/16 from -1 to 1.
float entry(int seed, std::int64_t r, std::int64_t c) {
  const auto bits = static_cast<std::uint32_t>(r * 7919 + c * 104729 + seed * 15485863) * 2654435761U;
  return static_cast<float>(bits >> 8) / static_cast<float>(1 << 23) - 1;
}

struct Filled {
  int seed;
  std::int64_t rows, columns;
  bool transposed = false;
  double at(std::int64_t r, std::int64_t c) const {
    if (transposed) std::swap(r, c);
    return r < rows && c < columns ? static_cast<double>(entry(seed, r, c)) : 0;
  }
};

template <class Put>
void for_elements(const Grid& grid, Tile tile, Put&& put) {
  for (int i = 0; i < grid.rows; ++i)
    for (int j = 0; j < grid.columns; ++j)
      for (int r = 0; r < tile.rows; ++r)
        for (int c = 0; c < tile.columns; ++c) put(i, j, r, c);
}

void fill_tiles(EventMesh& mesh, Tile tile, const Filled& matrix) {
  for_elements(mesh.grid(), tile, [&](int i, int j, int r, int c) {
    mesh.value(tile, i, j, r, c) =
        static_cast<float>(matrix.at(std::int64_t{i} * tile.rows + r, std::int64_t{j} * tile.columns + c));
  });
}

void fill_tiles(ValueMesh& mesh, Tile tile, const Filled& matrix) {
  for_elements(mesh.grid(), tile, [&](int i, int j, int r, int c) {
    mesh.at(tile, i, r, c)[j] =
        static_cast<float>(matrix.at(std::int64_t{i} * tile.rows + r, std::int64_t{j} * tile.columns + c));
  });
}

// As wafer_value_mesh_test's: k products and k - 1 + places sums, each rounded by 2^-24 of at most the sum of
// magnitudes.
void expect_gemm(const PlmrDevice& device, WaferMesh cores, WaferGemm method, WaferSync sync) {
  const Grid grid = Grid::square(cores, line_order(method));
  const GemmSize size{grid.columns * 2 - 1, grid.columns + 2, grid.columns * 3 - 2};  // nothing divides
  const Filled a{1, size.m, size.k}, b{2, size.k, size.n};
  Filled b_placed = b;
  b_placed.transposed = method == WaferGemm::gemm_t;
  const GemmPlacement natural{.a = Placement::natural, .b = Placement::natural};
  ThreadPool pool(1);
  const auto carry_out = [&](auto& mesh) {
    const GemmTiles t = allocate_gemm(mesh, size, method);
    fill_tiles(mesh, t.a, a);
    fill_tiles(mesh, t.b, b_placed);
    run_gemm(mesh, t, method, natural);
    return t.c;
  };
  EventMesh played(device, grid, sync);
  ValueMesh computed(grid, pool);
  const Tile c = carry_out(played), same = carry_out(computed);
  played.cycles();
  computed.settle();
  for_elements(grid, c, [&](int i, int j, int r, int n) {
    const std::int64_t row = std::int64_t{i} * c.rows + r, column = std::int64_t{j} * c.columns + n;
    double exact = 0, magnitude = 0;
    for (std::int64_t k = 0; k < size.k; ++k) {
      exact += a.at(row, k) * b.at(k, column);
      magnitude += std::abs(a.at(row, k) * b.at(k, column));
    }
    const double bound = std::ldexp(static_cast<double>(2 * size.k + grid.columns) * magnitude, -24);
    ASSERT_NEAR(static_cast<double>(played.value(c, i, j, r, n)), exact, bound)
        << cores.width << " x " << cores.height << ", place (" << i << ", " << j << ")";
    ASSERT_NEAR(static_cast<double>(computed.at(same, i, r, n)[j]), exact, bound);
  });
}

class OracleValues : public ::testing::TestWithParam<std::tuple<WaferGemm, WaferSync>> {};

TEST_P(OracleValues, OfEveryGemmAreTheProducts) {
  const auto [method, sync] = GetParam();
  for (const PlmrDevice& device : {hurried_device(), unhurried_device()})
    for (const WaferMesh cores : {WaferMesh{3, 3}, {4, 4}, {5, 5}, {8, 8}, {4, 6}, {6, 3}, {3, 4}})
      ASSERT_NO_FATAL_FAILURE(expect_gemm(device, cores, method, sync));
}

INSTANTIATE_TEST_SUITE_P(Gemms, OracleValues,
                         ::testing::Combine(::testing::Values(WaferGemm::mesh_gemm, WaferGemm::gemm_t, WaferGemm::summa,
                                                              WaferGemm::cannon, WaferGemm::all_gather),
                                            ::testing::Values(WaferSync::dataflow, WaferSync::rendezvous,
                                                              WaferSync::barrier)));

TEST(OracleMeshValues, OfTheLargestMeshAreTheProducts) {
  expect_gemm(hurried_device(), {32, 32}, WaferGemm::mesh_gemm, WaferSync::dataflow);
  expect_gemm(hurried_device(), {17, 17}, WaferGemm::cannon, WaferSync::rendezvous);
}

// Integers, so that every order of a sum gives the same result.
TEST(OracleMeshValues, OfEveryAllReduceAreTheLinesOwn) {
  for (const WaferMesh cores : {WaferMesh{3, 3}, {4, 7}, {9, 5}, {3, 32}})
    for (const AllReduceOptions& options :
         {AllReduceOptions{.phases = 1}, AllReduceOptions{}, AllReduceOptions{.phases = 3},
          AllReduceOptions{.method = WaferAllReduce::pipeline}, AllReduceOptions{.method = WaferAllReduce::ring}})
      for (const Axis axis : {Axis::x, Axis::y})
        for (const Reduction reduction : {Reduction::sum, Reduction::maximum}) {
          EventMesh mesh(hurried_device(), Grid::of_cores(cores));
          const Tile tile = mesh.allocate("sum", 1, 11, Buffers::two);
          const auto given = [](int i, int j, int c) { return (i * 31 + j * 17 + c * 7) % 23 - 30; };
          for_elements(mesh.grid(), tile, [&](int i, int j, int, int c) {
            mesh.value(tile, i, j, 0, c) = static_cast<float>(given(i, j, c));
          });
          mesh.all_reduce(tile, axis, reduction, options);
          mesh.cycles();
          for_elements(mesh.grid(), tile, [&](int i, int j, int, int c) {
            int expected = reduction == Reduction::sum ? 0 : -1000;
            for (int k = 0; k < mesh.grid().places(axis); ++k) {
              const int one = axis == Axis::x ? given(i, k, c) : given(k, j, c);
              expected = reduction == Reduction::sum ? expected + one : std::max(expected, one);
            }
            ASSERT_EQ(mesh.value(tile, i, j, 0, c), static_cast<float>(expected))
                << cores.width << " x " << cores.height << ", method " << static_cast<int>(options.method)
                << ", K = " << options.phases << ", place (" << i << ", " << j << "), value " << c;
          });
        }
}

TEST(OracleMeshValues, OfAGemvAreTheProductsInEveryCore) {
  for (const WaferMesh cores : {WaferMesh{9, 9}, {5, 16}}) {
    EventMesh mesh(unhurried_device(), Grid::of_cores(cores));
    const Filled x{3, 1, 100}, b{4, 100, 61};
    const GemvTiles t = allocate_gemv(mesh, b.rows, b.columns);
    fill_tiles(mesh, t.b, b);
    for_elements(mesh.grid(), t.x, [&](int i, int j, int, int k) {
      mesh.value(t.x, i, j, 0, k) = static_cast<float>(x.at(0, std::int64_t{i} * t.x.columns + k));
    });
    mesh_gemv(mesh, t);
    mesh.cycles();
    for_elements(mesh.grid(), t.y, [&](int i, int j, int, int n) {
      const std::int64_t column = std::int64_t{j} * t.y.columns + n;
      double exact = 0, magnitude = 0;
      for (std::int64_t k = 0; k < b.rows; ++k) {
        exact += x.at(0, k) * b.at(k, column);
        magnitude += std::abs(x.at(0, k) * b.at(k, column));
      }
      ASSERT_NEAR(static_cast<double>(mesh.value(t.y, i, j, 0, n)), exact, std::ldexp(200 * magnitude, -24));
    });
  }
}

// Each row to another place, or the first row of each place to all of them.
TEST(OracleMeshValues, OfAnExchangeAreTheRowsThatWereSent) {
  for (const auto& [axis, to_all] : {std::pair{Axis::x, false}, {Axis::y, false}, {Axis::x, true}, {Axis::y, true}}) {
    EventMesh mesh(hurried_device(), Grid::of_cores({6, 6}));
    const Tile from = mesh.allocate("from", 6, 5, Buffers::one), into = mesh.allocate("into", 6, 5, Buffers::one);
    fill_tiles(mesh, from, {5, 36, 30});
    std::vector<RowMove> moves;
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) moves.push_back({i, to_all ? 0 : j, j, i});
    mesh.exchange(from, into, axis, moves);
    mesh.cycles();
    for (const RowMove& m : moves)
      for (int line = 0; line < 6; ++line)
        for (int c = 0; c < 5; ++c) {
          const auto at_place = [&, axis = axis](Tile tile, int place, int row) {
            return axis == Axis::x ? mesh.value(tile, line, place, row, c) : mesh.value(tile, place, line, row, c);
          };
          ASSERT_EQ(at_place(into, m.to_place, m.to_row), at_place(from, m.from_place, m.from_row));
        }
  }
}

}  // namespace
}  // namespace heddle::mesh
