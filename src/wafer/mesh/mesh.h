// The operations of a mesh program. A program is a template over a Mesh and runs on three of them: MaxPlusMesh computes
// its cycles, EventMesh the cycles of a small mesh word by word (the oracle), ValueMesh its values. All cores run the
// same program; a tile is a matrix of the same shape at every place (grid.h). Values are those of executing operations
// one after the other. In time, operations within a step of `repeat` overlap as their contracts allow.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "wafer/cost/wafer_cost.h"
#include "wafer/mesh/grid.h"

namespace heddle::mesh {

// A handle: rows x columns values at each place. They count as fp16 for memory and words.
struct Tile {
  int id = -1;
  int rows = 0, columns = 0;
};

// A tile that is shifted, or reduced while the next one is computed, needs two.
enum class Buffers : std::uint8_t { one = 1, two = 2 };

enum class Operand : std::uint8_t { as_is, transposed };

enum class Reduction : std::uint8_t { sum, maximum };

// The place of a line that a broadcast comes from or a sum goes to.
struct Root {
  int place = 0;
  int per_line = 0;

  static Root at(int place) { return {.place = place}; }
  // In line i (along x: row i; along y: column i) the place (i + offset) mod N.
  static Root diagonal(int offset) { return {.place = offset, .per_line = 1}; }

  int in_line(int line, int places) const { return static_cast<int>((std::int64_t{line} * per_line + place) % places); }
};

// In each line along an axis, row from_row of the tile at from_place moves to row to_row of the tile at to_place.
struct RowMove {
  int from_place = 0, from_row = 0, to_place = 0, to_row = 0;
};

struct TileAxis {
  Tile tile;
  Axis axis;
};

// Indices: a place is (i, j), with row i along y and column j along x; N places a line; all mod N.
//
//   phase(name)        names what follows in errors and breakdowns
//   allocate, release  Values begin as zeros. Throws InputError that names core, phase, need and budget when a core's
//                      memory does not suffice.
//   repeat(n, body)    body(0) ... body(n - 1), one step each, all with the same operations. A mesh that only measures
//                      time may stop calling it once every step takes as long as the one before.
//   skew({{t, axis}})  each t, all at once: along x (i, j) gets what (i, i + j) held; along y what (i + j, j) held
//   shift(t, axis)     each place gets what its successor in the ring held: along x (i, j) gets (i, j + 1)'s. Overlaps
//                      with the rest of the step. Routes of the axis: one in, one out, one that passes.
//   broadcast(from, into, axis, root)  `into` of all places of a line gets `from` of its root. Waits until the
//                      line no longer uses `into`, which it overwrites. Relayed: routes one in, one out.
//   reduce(from, into, axis, root)     `into` of a line's root gets the sum of the line's `from`; other places keep
//                      theirs. A chain from both ends of the line; overlaps with the next step. Routes one in, one out.
//   gather(from, all, axis)            all[k] gets `from` of the line's place k. Relayed, N - 1 steps.
//   exchange(from, into, axis, moves)  moves rows of `from` as `moves` says; other rows of `into` keep their values. In
//                      both directions at once, from core to core: each keeps its rows and forwards the rest. A row that
//                      goes to several places in a direction is sent once, to the farthest, and kept by the others on
//                      its way. Two routes per direction.
//   all_reduce(t, axis, reduction, options)  t of all places of a line gets the line's reduction, by the schedule in
//                      options. Routes: wafer/cost/README.md.
//   clear(t)           t = 0, no time
//   multiply_add(a, b, c, operand)  c += a b; transposed: c += a b^T. Takes call_cycles per inner index and mac_cycles
//                      per multiply-accumulate.
//   multiply_vector(x, b, y)        the same, row by row of x and y; vector_slice_cycles instead of call_cycles
//
// A transfer takes its routes the first time it is used on an axis. It throws InputError that names core, phase, need
// and budget when they do not suffice.
template <class M>
concept Mesh = requires(M m, const M cm, std::string_view name, Tile t, std::initializer_list<TileAxis> tiles,
                        std::span<const Tile> all, std::span<const RowMove> moves, Axis axis, Root root,
                        const AllReduceOptions& options) {
  { cm.grid() } -> std::same_as<const Grid&>;
  m.phase(name);
  { m.allocate(name, 1, 1, Buffers::two) } -> std::same_as<Tile>;
  m.release(t);
  m.repeat(1, [](int) {});
  m.skew(tiles);
  m.shift(t, axis);
  m.broadcast(t, t, axis, root);
  m.reduce(t, t, axis, root);
  m.gather(t, all, axis);
  m.exchange(t, t, axis, moves);
  m.all_reduce(t, axis, Reduction::sum, options);
  m.clear(t);
  m.multiply_add(t, t, t, Operand::as_is);
  m.multiply_vector(t, t, t);
};

}  // namespace heddle::mesh
