// GEMMs as mesh programs (WaferLLM, section 5). C [m, n] = A [m, k] B [k, n] in tiles of ceil(size / P), padded with
// zeros. Block (i, j) lies at place (i, j): A has m along y and k along x, B has k along y and n along x, C has m along
// y and n along x. After the last step a and b stay shifted as they are (as after alignment).
#pragma once

#include <vector>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// aligned: place (i, j) already holds what skew would move there. Weights are loaded this way.
enum class Placement : std::uint8_t { natural, aligned };

struct GemmPlacement {
  Placement a = Placement::natural, b = Placement::aligned;
};

constexpr int tile_side(std::int64_t size, int places) {
  return static_cast<int>((size - 1) / places + 1);
}

constexpr LineOrder line_order(WaferGemm method) {
  return method == WaferGemm::mesh_gemm || method == WaferGemm::gemm_t ? LineOrder::interleaved : LineOrder::natural;
}

// MeshGEMM (5.3) on interleaved lines; Cannon on natural ones. a, b: two buffers each.
template <Mesh M>
void mesh_gemm(M& mesh, Tile a, Tile b, Tile c, GemmPlacement placement = {}) {
  mesh.clear(c);
  mesh.phase("alignment");
  const bool skew_a = placement.a == Placement::natural, skew_b = placement.b == Placement::natural;
  if (skew_a && skew_b)
    mesh.skew({{a, Axis::x}, {b, Axis::y}});
  else if (skew_a)
    mesh.skew({{a, Axis::x}});
  else if (skew_b)
    mesh.skew({{b, Axis::y}});

  mesh.phase("compute-shift loop");
  mesh.repeat(mesh.grid().columns, [&](int) {
    mesh.multiply_add(a, b, c, Operand::as_is);
    mesh.shift(a, Axis::x);
    mesh.shift(b, Axis::y);
  });
}

// C = A B^T (5.4) with B [n, k] placed like A, neither transposed nor aligned. b, partial: two buffers each; partial
// has the shape of c.
template <Mesh M>
void gemm_t(M& mesh, Tile a, Tile b, Tile partial, Tile c) {
  mesh.phase("compute-shift loop");
  mesh.repeat(mesh.grid().columns, [&](int step) {
    mesh.clear(partial);
    mesh.multiply_add(a, b, partial, Operand::transposed);
    mesh.reduce(partial, c, Axis::x, Root::diagonal(step));
    mesh.shift(b, Axis::y);
  });
}

// SUMMA: in step t all rows get column t of A's tiles, all columns row t of B's. row, column: shaped like a and b.
template <Mesh M>
void summa(M& mesh, Tile a, Tile b, Tile row, Tile column, Tile c) {
  mesh.clear(c);
  mesh.phase("broadcast loop");
  mesh.repeat(mesh.grid().columns, [&](int step) {
    mesh.broadcast(a, row, Axis::x, Root::at(step));
    mesh.broadcast(b, column, Axis::y, Root::at(step));
    mesh.multiply_add(row, column, c, Operand::as_is);
  });
}

// All-gather GEMM: every core holds P tiles of A and of B. rows: P tiles like a; columns: P tiles like b.
template <Mesh M>
void all_gather_gemm(M& mesh, Tile a, Tile b, const std::vector<Tile>& rows, const std::vector<Tile>& columns, Tile c) {
  mesh.clear(c);
  mesh.phase("all-gather");
  mesh.gather(a, rows, Axis::x);
  mesh.gather(b, columns, Axis::y);
  mesh.phase("multiply");
  mesh.repeat(mesh.grid().columns, [&](int step) {
    const auto k = static_cast<std::size_t>(step);
    mesh.multiply_add(rows[k], columns[k], c, Operand::as_is);
  });
}

struct GemmTiles {
  Tile a, b, c;
};

// The tiles of a GEMM, before its operands are loaded. For GEMM-T, b is [n, k].
template <Mesh M>
GemmTiles allocate_gemm(M& mesh, const GemmSize& size, WaferGemm method) {
  mesh.phase("allocation");
  const int p = mesh.grid().columns;
  const int m = tile_side(size.m, p), k = tile_side(size.k, p), n = tile_side(size.n, p);
  const bool shifts = method == WaferGemm::mesh_gemm || method == WaferGemm::cannon;
  const Buffers a = shifts ? Buffers::two : Buffers::one;
  const Buffers b = shifts || method == WaferGemm::gemm_t ? Buffers::two : Buffers::one;
  const bool transposed = method == WaferGemm::gemm_t;
  return {.a = mesh.allocate("A", m, k, a),
          .b = transposed ? mesh.allocate("B", n, k, b) : mesh.allocate("B", k, n, b),
          .c = mesh.allocate("C", m, n, Buffers::one)};
}

// Allocates the buffers that the method needs beside its operands, and runs it.
template <Mesh M>
void run_gemm(M& mesh, const GemmTiles& t, WaferGemm method, GemmPlacement placement = {}) {
  const auto stack = [&](const char* name, Tile like) {
    std::vector<Tile> tiles(static_cast<std::size_t>(mesh.grid().columns));
    for (Tile& tile : tiles) tile = mesh.allocate(name, like.rows, like.columns, Buffers::one);
    return tiles;
  };
  std::vector<Tile> scratch;
  switch (method) {
    case WaferGemm::mesh_gemm:
    case WaferGemm::cannon:
      mesh_gemm(mesh, t.a, t.b, t.c, placement);
      break;
    case WaferGemm::gemm_t:
      scratch = {mesh.allocate("partial sums", t.c.rows, t.c.columns, Buffers::two)};
      gemm_t(mesh, t.a, t.b, scratch[0], t.c);
      break;
    case WaferGemm::summa:
      scratch = {mesh.allocate("broadcast of A", t.a.rows, t.a.columns, Buffers::one),
                 mesh.allocate("broadcast of B", t.b.rows, t.b.columns, Buffers::one)};
      summa(mesh, t.a, t.b, scratch[0], scratch[1], t.c);
      break;
    case WaferGemm::all_gather: {
      mesh.phase("all-gather");
      const std::vector<Tile> rows = stack("row of A", t.a), columns = stack("column of B", t.b);
      all_gather_gemm(mesh, t.a, t.b, rows, columns, t.c);
      scratch = rows;
      scratch.insert(scratch.end(), columns.begin(), columns.end());
      break;
    }
  }
  for (const Tile tile : scratch) mesh.release(tile);
}

}  // namespace heddle::mesh
