// Every program's values on a mesh compared with float64.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "wafer/mesh/gemv.h"
#include "wafer/mesh/value_mesh.h"

namespace heddle::mesh {
namespace {

struct Matrix {
  Matrix(std::int64_t height, std::int64_t width, unsigned seed) : rows(height), columns(width) {
    std::minstd_rand random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(uniform(random));
  }
  float at(std::int64_t r, std::int64_t c) const {
    return r < rows && c < columns ? values[static_cast<std::size_t>(r * columns + c)] : 0;
  }
  Matrix transposed() const {
    Matrix result(columns, rows, 1);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) result.values[static_cast<std::size_t>(c * rows + r)] = at(r, c);
    return result;
  }

  std::int64_t rows, columns;
  std::vector<float> values;
};

// Rows along y, columns along x.
void load(ValueMesh& mesh, Tile tile, const Matrix& matrix) {
  for (int i = 0; i < mesh.grid().rows; ++i)
    for (int r = 0; r < tile.rows; ++r)
      for (int c = 0; c < tile.columns; ++c)
        for (int j = 0; j < mesh.grid().columns; ++j)
          mesh.at(tile, i, r, c)[j] = matrix.at(std::int64_t{i} * tile.rows + r, std::int64_t{j} * tile.columns + c);
}

float value_at(ValueMesh& mesh, Tile tile, std::int64_t r, std::int64_t c) {
  return mesh.at(tile, static_cast<int>(r / tile.rows), static_cast<int>(r % tile.rows),
                 static_cast<int>(c % tile.columns))[c / tile.columns];
}

// A sum of k products, in any order and with zeros added: k roundings of products and up to k - 1 + places of sums,
// each of 2^-24 of at most the sum of magnitudes.
struct Product {
  double value = 0, bound = 0;
};
Product exact(const Matrix& a, const Matrix& b, std::int64_t r, std::int64_t c, int places) {
  Product result;
  double magnitude = 0;
  for (std::int64_t k = 0; k < a.columns; ++k) {
    const double product = static_cast<double>(a.at(r, k)) * static_cast<double>(b.at(k, c));
    result.value += product;
    magnitude += std::abs(product);
  }
  result.bound = std::ldexp(static_cast<double>(2 * a.columns + places) * magnitude, -24);
  return result;
}

void expect_product(const GemmSize& size, WaferMesh cores, WaferGemm method, GemmPlacement placement,
                    ThreadPool& pool) {
  ValueMesh mesh(Grid::square(cores, line_order(method)), pool);
  const Matrix a(size.m, size.k, 1), b(size.k, size.n, 2);
  const GemmTiles tiles = allocate_gemm(mesh, size, method);
  load(mesh, tiles.a, a);
  load(mesh, tiles.b, method == WaferGemm::gemm_t ? b.transposed() : b);
  if (placement.b == Placement::aligned) mesh.skew({{tiles.b, Axis::y}});
  run_gemm(mesh, tiles, method, placement);
  mesh.settle();
  const int places = mesh.grid().columns;
  for (std::int64_t r = 0; r < std::int64_t{places} * tiles.c.rows; ++r)
    for (std::int64_t c = 0; c < std::int64_t{places} * tiles.c.columns; ++c) {
      const Product expected = exact(a, b, r, c, places);
      ASSERT_NEAR(static_cast<double>(value_at(mesh, tiles.c, r, c)), expected.value, expected.bound) << fmt::format(
          "{} x {} cores, method {}, C[{}, {}]", cores.width, cores.height, static_cast<int>(method), r, c);
    }
}

constexpr WaferGemm kMethods[] = {WaferGemm::mesh_gemm, WaferGemm::gemm_t, WaferGemm::summa, WaferGemm::cannon,
                                  WaferGemm::all_gather};
constexpr GemmPlacement kNatural{.a = Placement::natural, .b = Placement::natural};

TEST(WaferValueMesh, GemmsMatchFloat64OnEverySquareMesh) {
  ThreadPool pool(2);
  for (int side = 3; side <= 33; ++side)
    for (const WaferGemm method : kMethods)  // sizes that leave places without, and tiles of all shapes
      ASSERT_NO_FATAL_FAILURE(
          expect_product({side + 1, 2 * side - 1, side / 2 + 1}, {side, side}, method, kNatural, pool));
}

TEST(WaferValueMesh, GemmsMatchFloat64WhereTilesAreLarge) {
  ThreadPool pool(2);
  for (const WaferGemm method : kMethods)
    ASSERT_NO_FATAL_FAILURE(expect_product({35, 23, 40}, {5, 5}, method, kNatural, pool));
}

TEST(WaferValueMesh, GemmsMatchFloat64OnMeshesThatAreNotSquare) {
  ThreadPool pool(2);
  for (const WaferMesh cores : {WaferMesh{3, 4}, WaferMesh{6, 4}, WaferMesh{3, 5}, WaferMesh{8, 4}})
    for (const WaferGemm method : kMethods)
      ASSERT_NO_FATAL_FAILURE(expect_product({13, 25, 11}, cores, method, kNatural, pool));
}

TEST(WaferValueMesh, AMatrixThatWasPlacedAlignedNeedsNoAlignment) {
  ThreadPool pool(1);
  expect_product({9, 10, 11}, {4, 4}, WaferGemm::mesh_gemm, {}, pool);
}

// Places the rows of x and B as mesh_gemv() takes them, runs it, and compares every value of y.
void expect_gemv(WaferMesh cores, int batch, Axis axis, const AllReduceOptions& options, ThreadPool& pool) {
  ValueMesh mesh(Grid::of_cores(cores), pool);
  const Matrix x(batch, 50, 3), b(50, 41, 4);
  const GemvTiles tiles = allocate_gemv(mesh, b.rows, b.columns, axis, batch);
  for (int i = 0; i < cores.height; ++i)
    for (int j = 0; j < cores.width; ++j) {
      const std::int64_t along = axis == Axis::y ? i : j, over = axis == Axis::y ? j : i;
      for (int k = 0; k < tiles.b.rows; ++k) {
        for (int v = 0; v < batch; ++v) mesh.at(tiles.x, i, v, k)[j] = x.at(v, along * tiles.b.rows + k);
        for (int n = 0; n < tiles.b.columns; ++n)
          mesh.at(tiles.b, i, k, n)[j] = b.at(along * tiles.b.rows + k, over * tiles.b.columns + n);
      }
    }
  mesh_gemv(mesh, tiles, axis, options);
  mesh.settle();
  for (int i = 0; i < cores.height; ++i)
    for (int j = 0; j < cores.width; ++j)
      for (int v = 0; v < batch; ++v)
        for (int n = 0; n < tiles.y.columns; ++n) {
          const Product expected =
              exact(x, b, v, std::int64_t{axis == Axis::y ? j : i} * tiles.y.columns + n, mesh.grid().places(axis));
          ASSERT_NEAR(static_cast<double>(mesh.at(tiles.y, i, v, n)[j]), expected.value, expected.bound)
              << fmt::format("{} x {}, vector {} of {}, method {}, phases {}", cores.width, cores.height, v, batch,
                             static_cast<int>(options.method), options.phases);
        }
}

TEST(WaferValueMesh, GemvsMatchFloat64AlongBothAxesWithEveryAllReduce) {
  ThreadPool pool(2);
  std::vector<WaferMesh> meshes{{4, 3}, {3, 7}, {16, 5}, {33, 4}};
  for (int side = 3; side <= 33; ++side) meshes.push_back({side, side});
  for (const WaferMesh cores : meshes)
    for (const AllReduceOptions options :
         {AllReduceOptions{}, AllReduceOptions{.phases = 1}, AllReduceOptions{.phases = 3},
          AllReduceOptions{.method = WaferAllReduce::pipeline}, AllReduceOptions{.method = WaferAllReduce::ring}})
      for (const Axis axis : {Axis::y, Axis::x}) expect_gemv(cores, 1, axis, options, pool);
}

TEST(WaferValueMesh, EachVectorOfABatchHasItsOwnProduct) {
  ThreadPool pool(1);
  for (const WaferMesh cores : {WaferMesh{7, 7}, {4, 9}})
    for (const Axis axis : {Axis::y, Axis::x}) expect_gemv(cores, 5, axis, {}, pool);
}

// Integers, so that sums are exact: with every schedule, every element at every place belongs to its own line.
TEST(WaferValueMesh, AllReducesAreTheLinesOwnAtEveryPlaceAndElement) {
  ThreadPool pool(2);
  for (const WaferMesh cores : {WaferMesh{5, 4}, {3, 9}, {17, 6}})
    for (const AllReduceOptions options :
         {AllReduceOptions{}, AllReduceOptions{.phases = 3}, AllReduceOptions{.method = WaferAllReduce::pipeline},
          AllReduceOptions{.method = WaferAllReduce::ring}})
      for (const Axis axis : {Axis::x, Axis::y})
        for (const Reduction reduction : {Reduction::sum, Reduction::maximum}) {
          ValueMesh mesh(Grid::of_cores(cores), pool);
          const Tile tile = mesh.allocate("t", 3, 7, Buffers::one);  // more elements than some lines have places
          const auto value = [](int i, int j, int r, int c) { return (i * 31 + j * 17 + r * 7 + c * 3) % 23 - 30; };
          for (int i = 0; i < cores.height; ++i)
            for (int e = 0; e < 21; ++e)
              for (int j = 0; j < cores.width; ++j)
                mesh.at(tile, i, e / 7, e % 7)[j] = static_cast<float>(value(i, j, e / 7, e % 7));
          mesh.all_reduce(tile, axis, reduction, options);
          for (int i = 0; i < cores.height; ++i)
            for (int j = 0; j < cores.width; ++j)
              for (int e = 0; e < 21; ++e) {
                int expected = reduction == Reduction::sum ? 0 : -1000;
                for (int k = 0; k < mesh.grid().places(axis); ++k) {
                  const int one = axis == Axis::x ? value(i, k, e / 7, e % 7) : value(k, j, e / 7, e % 7);
                  expected = reduction == Reduction::sum ? expected + one : std::max(expected, one);
                }
                ASSERT_EQ(mesh.at(tile, i, e / 7, e % 7)[j], static_cast<float>(expected))
                    << fmt::format("{} x {}, method {}, place ({}, {})", cores.width, cores.height,
                                   static_cast<int>(options.method), i, j);
              }
        }
}

TEST(WaferValueMesh, ExchangesRowsAlongEitherAxis) {
  ThreadPool pool(1);
  for (const Axis axis : {Axis::x, Axis::y}) {
    ValueMesh mesh(Grid::of_cores({5, 5}), pool);
    const Tile from = mesh.allocate("from", 2, 3, Buffers::one), into = mesh.allocate("into", 4, 3, Buffers::one);
    for (int i = 0; i < 5; ++i)
      for (int e = 0; e < 6; ++e)
        for (int j = 0; j < 5; ++j) mesh.at(from, i, e / 3, e % 3)[j] = static_cast<float>(100 * i + 10 * j + e);
    const RowMove moves[] = {{0, 1, 4, 3}, {3, 0, 3, 0}, {4, 1, 0, 2}};
    mesh.exchange(from, into, axis, moves);
    for (const auto& m : moves)
      for (int line = 0; line < 5; ++line)
        for (int c = 0; c < 3; ++c) {
          const int sent =
              m.from_row * 3 + c + (axis == Axis::y ? 100 * m.from_place + 10 * line : 100 * line + 10 * m.from_place);
          EXPECT_EQ(axis == Axis::y ? mesh.at(into, m.to_place, m.to_row, c)[line]
                                    : mesh.at(into, line, m.to_row, c)[m.to_place],
                    static_cast<float>(sent));
        }
    EXPECT_EQ(mesh.at(into, 2, 2, 2)[2], 0);  // named by none
    EXPECT_THROW(mesh.exchange(from, from, axis, moves), InvalidArgument);
  }
}

// Of any shape: bits must not depend on which thread computed which row.
TEST(WaferValueMesh, BitsDoNotDependOnTheNumberOfThreads) {
  const auto run = [](int threads) {
    ThreadPool pool(threads);
    ValueMesh mesh(Grid::square({7, 7}, LineOrder::interleaved), pool);
    const GemmTiles tiles = allocate_gemm(mesh, {20, 30, 10}, WaferGemm::mesh_gemm);
    load(mesh, tiles.a, Matrix(20, 30, 1));
    load(mesh, tiles.b, Matrix(30, 10, 2));
    run_gemm(mesh, tiles, WaferGemm::mesh_gemm, kNatural);
    mesh.settle();
    std::vector<float> values;
    for (int r = 0; r < 20; ++r)
      for (int c = 0; c < 10; ++c) values.push_back(value_at(mesh, tiles.c, r, c));
    return values;
  };
  EXPECT_EQ(run(1), run(3));
}

TEST(WaferValueMesh, ReleasedTilesAreUsedAgainAndBeginAsZeros) {
  ThreadPool pool(1);
  ValueMesh mesh(Grid::of_cores({3, 3}), pool);
  const Tile first = mesh.allocate("a", 2, 2, Buffers::one);
  mesh.at(first, 1, 1, 1)[2] = 5;
  mesh.release(first);
  const Tile second = mesh.allocate("b", 2, 2, Buffers::one);
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(mesh.at(second, 1, 1, 1)[2], 0);
  mesh.release(second);
  EXPECT_THROW(mesh.release(second), InvalidArgument);
}

TEST(WaferValueMesh, RefusesTilesThatDoNotFit) {
  ThreadPool pool(1);
  ValueMesh mesh(Grid::of_cores({3, 3}), pool);
  const Tile a = mesh.allocate("a", 2, 3, Buffers::one), b = mesh.allocate("b", 2, 3, Buffers::one);
  const Tile c = mesh.allocate("c", 2, 3, Buffers::one);
  EXPECT_THROW(mesh.multiply_add(a, b, c, Operand::as_is), InvalidArgument);
  EXPECT_THROW(mesh.allocate("none", 0, 1, Buffers::one), InvalidArgument);
  for (const RowMove& nowhere :
       {RowMove{.to_place = 3}, {.to_place = -1}, {.to_row = 2}, {.from_row = 2}, {.from_place = 3}})
    EXPECT_THROW(mesh.exchange(a, b, Axis::y, std::span(&nowhere, 1)), InvalidArgument);
}

}  // namespace
}  // namespace heddle::mesh
