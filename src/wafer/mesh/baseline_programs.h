// The programs that the WaferLLM paper compares with (section 7.1), as their compilers would write them for a flat address
// space (flat_space.h). They run on EventMesh, which moves every word, and on LoadMesh, which counts them. Each phase of
// work, and each of transfers, begins when all cores are done with the one before, as on the machines they were made for.
//
//   T10     A compute-shift: C (i, j) stays at port i W + j. In step s the port multiplies piece kappa = first(j) + first(i)
//           + s of K, then hands its tile of A to port (i, j - 1) and of B to port (i - 1, j). Ports are addresses, so that
//           neighbouring ports are far apart. A sum: all ports of a column send to one, which sends the result back.
//   Ladder  A load, compute and store over shared memory. Tiles have addresses: A, then B, then C, row by row. Core (i, j)
//           computes C (i, j): in step s it loads piece s of row i of A and of column j of B from wherever they live; at the
//           end it stores C. A sum: all cores store their parts, one core a column loads them, adds, and stores the result.
#pragma once

#include <string_view>
#include <vector>

#include "wafer/cost/wafer_baselines.h"
#include "wafer/mesh/flat_space.h"
#include "wafer/mesh/tile_move.h"

namespace heddle::mesh {

struct BaselineShape {
  WaferMesh cores;
  int steps = 0;                 // pieces of K
  int a_tiles = 0, b_tiles = 0;  // of a core
  int m = 0, k = 0, n = 0;

  static BaselineShape of(const GemmSize& size, WaferMesh cores) {
    const BaselineTiles tiles = baseline_tiles(size, cores);
    return {.cores = cores,
            .steps = static_cast<int>(tiles.steps),
            .a_tiles = static_cast<int>(tiles.a_tiles),
            .b_tiles = static_cast<int>(tiles.b_tiles),
            .m = static_cast<int>(tiles.m),
            .k = static_cast<int>(tiles.k),
            .n = static_cast<int>(tiles.n)};
  }
};

using Slots = std::vector<Tile>;

template <class M>
Slots allocate_slots(M& mesh, std::string_view name, int count, int rows, int columns) {
  Slots slots;
  for (int slot = 0; slot < count; ++slot) slots.push_back(mesh.allocate(name, rows, columns, Buffers::one));
  return slots;
}

// slots[index], where index counts on beyond the last.
inline Tile in_turn(const Slots& slots, std::int64_t index) {
  return slots[static_cast<std::size_t>(index % std::ssize(slots))];
}

// work(cycles, ...) of c += a b on every core; tiles(core) are that core's.
struct CoreGemm {
  Tile a, b, c;
};
template <class M, class Tiles>
void multiply_tiles(M& mesh, double cycles, int width, Tiles&& tiles) {
  if constexpr (requires(Tile t) { mesh.value(t, 0, 0, 0, 0); }) {
    mesh.work(cycles, [&mesh, width, tiles](int core) {
      const CoreGemm at = tiles(core);
      const int i = core / width, j = core % width;
      for (int r = 0; r < at.c.rows; ++r)
        for (int c = 0; c < at.c.columns; ++c)
          for (int k = 0; k < at.a.columns; ++k)
            mesh.value(at.c, i, j, r, c) += mesh.value(at.a, i, j, r, k) * mesh.value(at.b, i, j, k, c);
    });
  } else {
    mesh.work(cycles, [](int) {});
  }
}

struct T10Gemm {
  BaselineShape shape;
  FlatSpace ports;
  Slots a, b;  // the tiles that a core owns, and one on its way: piece kappa is in slot kappa
  Tile c;

  int core(int i, int j) const { return ports.core(std::int64_t{i} * shape.cores.width + j); }
  // The first piece of a line's port number `index`, and the first that is the next one's.
  int first(Axis axis, int index) const {
    const int line = axis == Axis::x ? shape.cores.width : shape.cores.height;
    return static_cast<int>(std::int64_t{index} * shape.steps / line);
  }
};

template <class M>
T10Gemm allocate_t10_gemm(M& mesh, const GemmSize& size) {
  const BaselineShape shape = BaselineShape::of(size, mesh.grid().cores);
  mesh.phase("T10-like GEMM");
  return {.shape = shape,
          .ports = FlatSpace::of(shape.cores),
          .a = allocate_slots(mesh, "A", shape.a_tiles + 1, shape.m, shape.k),
          .b = allocate_slots(mesh, "B", shape.b_tiles + 1, shape.k, shape.n),
          .c = mesh.allocate("C", shape.m, shape.n, Buffers::one)};
}

// Piece kappa of K (mod steps), of row i of A, begins at the port (i, j) with first(j) + first(i) <= kappa < first(j + 1) +
// first(i); of column j of B likewise.
template <class M>
void t10_gemm(M& mesh, const T10Gemm& t, double product_cycles) {
  const int width = t.shape.cores.width, height = t.shape.cores.height;
  std::vector<int> piece(static_cast<std::size_t>(width) * height);  // that a core begins with
  for (int i = 0; i < height; ++i)
    for (int j = 0; j < width; ++j) piece[t.core(i, j)] = t.first(Axis::x, j) + t.first(Axis::y, i);
  mesh.repeat(t.shape.steps, [&](int s) {
    multiply_tiles(mesh, product_cycles, width, [&](int core) {
      const int kappa = piece[core] + s;
      return CoreGemm{in_turn(t.a, kappa), in_turn(t.b, kappa), t.c};
    });
    // From the next port; where that is the first of the line, pieces count on by all of K.
    mesh.transfer(std::int64_t{2} * width * height, Access::send, Arrival::replace, [&](std::int64_t n) {
      const int port = static_cast<int>(n / 2), i = port / width, j = port % width;
      const bool along_x = n % 2 == 0;
      const int next_i = along_x ? i : (i + 1) % height, next_j = along_x ? (j + 1) % width : j;
      const int from = t.core(next_i, next_j), sent = piece[from] + s;
      const bool wraps = along_x ? next_j == 0 : next_i == 0;
      const Slots& slots = along_x ? t.a : t.b;
      return TileMove{from, in_turn(slots, sent), t.core(i, j), in_turn(slots, sent + (wraps ? t.shape.steps : 0))};
    });
  });
}

struct LadderGemm {
  BaselineShape shape;
  FlatSpace memory;
  Slots a_home, b_home;
  Tile c_home, a, b, c;  // a, b, c: copies

  struct Place {
    int core, slot;
  };
  // `tile`: its number in its matrix, row by row. `before`: tiles at lower addresses.
  Place place(std::int64_t before, std::int64_t tile) const { return {memory.core(before + tile), memory.slot(tile)}; }
  std::int64_t all_a() const { return std::int64_t{shape.cores.height} * shape.steps; }
  std::int64_t all_b() const { return std::int64_t{shape.steps} * shape.cores.width; }
  Place a_place(int i, int k) const { return place(0, std::int64_t{i} * shape.steps + k); }
  Place b_place(int k, int j) const { return place(all_a(), std::int64_t{k} * shape.cores.width + j); }
  Place c_place(int core) const { return place(all_a() + all_b(), core); }
};

template <class M>
LadderGemm allocate_ladder_gemm(M& mesh, const GemmSize& size) {
  const BaselineShape shape = BaselineShape::of(size, mesh.grid().cores);
  mesh.phase("Ladder-like GEMM");
  return {.shape = shape,
          .memory = FlatSpace::of(shape.cores),
          .a_home = allocate_slots(mesh, "A where it lives", shape.a_tiles, shape.m, shape.k),
          .b_home = allocate_slots(mesh, "B where it lives", shape.b_tiles, shape.k, shape.n),
          .c_home = mesh.allocate("C where it lives", shape.m, shape.n, Buffers::one),
          .a = mesh.allocate("A's copy", shape.m, shape.k, Buffers::one),
          .b = mesh.allocate("B's copy", shape.k, shape.n, Buffers::one),
          .c = mesh.allocate("C's copy", shape.m, shape.n, Buffers::one)};
}

template <class M>
void ladder_gemm(M& mesh, const LadderGemm& t, double product_cycles) {
  const int width = t.shape.cores.width;
  const std::int64_t cores = t.memory.cores;
  mesh.repeat(t.shape.steps, [&](int s) {
    mesh.transfer(2 * cores, Access::load, Arrival::replace, [&](std::int64_t n) {
      const int core = static_cast<int>(n / 2);
      if (n % 2 == 0) {
        const LadderGemm::Place a = t.a_place(core / width, s);
        return TileMove{a.core, in_turn(t.a_home, a.slot), core, t.a};
      }
      const LadderGemm::Place b = t.b_place(s, core % width);
      return TileMove{b.core, in_turn(t.b_home, b.slot), core, t.b};
    });
    multiply_tiles(mesh, product_cycles, width, [&](int) { return CoreGemm{t.a, t.b, t.c}; });
  });
  mesh.transfer(cores, Access::send, Arrival::replace, [&](std::int64_t core) {
    return TileMove{static_cast<int>(core), t.c, t.c_place(static_cast<int>(core)).core, t.c_home};
  });
}

// The core that sums column j of an x B on the places (i, j), in the addresses of the space.
inline std::int64_t sum_address(WaferMesh cores, int j) {
  return std::int64_t{j % cores.height} * cores.width + j;
}

// `part` [1, n] of the ports (i, j) becomes the sum over i. total: as part, zero.
template <class M>
void t10_sum(M& mesh, const FlatSpace& ports, Tile part, Tile total) {
  const WaferMesh cores = mesh.grid().cores;
  const auto root = [&](std::int64_t port) {
    return ports.core(sum_address(cores, static_cast<int>(port % cores.width)));
  };
  mesh.transfer(ports.cores, Access::send, Arrival::add, [&](std::int64_t port) {
    return TileMove{ports.core(port), part, root(port), total};
  });
  mesh.transfer(ports.cores, Access::send, Arrival::replace, [&](std::int64_t port) {
    return TileMove{root(port), total, ports.core(port), part};
  });
}

struct LadderSum {
  Tile part, part_home, total, total_home;
};

// The sums over i of `part` of the cores (i, j) end in total_home: that of column j at address j after the parts'.
template <class M>
void ladder_sum(M& mesh, const FlatSpace& memory, const LadderSum& t) {
  const WaferMesh cores = mesh.grid().cores;
  mesh.transfer(memory.cores, Access::send, Arrival::replace, [&](std::int64_t core) {
    return TileMove{static_cast<int>(core), t.part, memory.core(core), t.part_home};
  });
  mesh.transfer(memory.cores, Access::load, Arrival::add, [&](std::int64_t core) {
    return TileMove{memory.core(core), t.part_home,
                    static_cast<int>(sum_address(cores, static_cast<int>(core % cores.width))), t.total};
  });
  mesh.transfer(cores.width, Access::send, Arrival::replace, [&](std::int64_t j) {
    return TileMove{static_cast<int>(sum_address(cores, static_cast<int>(j))), t.total, memory.core(memory.cores + j),
                    t.total_home};
  });
}

struct LadderGemv {
  Tile x_home, b_home, x, b;  // x, b: copies
};

// Every core (i, j) loads its tile of B, and piece i of x, from wherever they live: x after B.
template <class M>
void ladder_load_operands(M& mesh, const FlatSpace& memory, const LadderGemv& t) {
  const int width = mesh.grid().cores.width;
  mesh.transfer(2 * memory.cores, Access::load, Arrival::replace, [&](std::int64_t n) {
    const auto core = static_cast<int>(n / 2);
    return n % 2 == 0 ? TileMove{memory.core(core), t.b_home, core, t.b}
                      : TileMove{memory.core(memory.cores + core / width), t.x_home, core, t.x};
  });
}

}  // namespace heddle::mesh
