// A mesh that computes the values of every place's tiles, in float32 (mesh.h has the operations). Its results depend on
// the program only, not on the number of threads.
//
// A shift changes an offset and copies nothing. Multiplications that add to the same tile, with shifts between them,
// are deferred until a value is read. Each row of places then takes all its steps one after the other, with its sums in
// the cache. A row whose tiles of A are all zeros is skipped. Sums run over k in the order in which the tiles come by.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "wafer/mesh/mesh.h"
#include "wafer/mesh/value_line.h"
#include "wafer/mesh/value_tiles.h"

namespace heddle::mesh {

class ValueMesh {
 public:
  // `pool` must outlive it. Throws InvalidArgument unless the grid has places.
  ValueMesh(const Grid& grid, ThreadPool& pool);

  const Grid& grid() const { return grid_; }

  void phase(std::string_view) {}
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers);
  void release(Tile tile);
  template <class Body>
  void repeat(int count, Body&& body) {
    for (int step = 0; step < count; ++step) body(step);
  }

  void skew(std::initializer_list<TileAxis> tiles);
  void shift(Tile tile, Axis axis);
  void broadcast(Tile from, Tile into, Axis axis, Root root);
  void reduce(Tile from, Tile into, Axis axis, Root root);
  void gather(Tile from, std::span<const Tile> all, Axis axis);
  void exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves);
  void all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options);
  void clear(Tile tile);
  void multiply_add(Tile a, Tile b, Tile c, Operand operand);
  void multiply_vector(Tile x, Tile b, Tile y) { multiply_add(x, b, y, Operand::as_is); }

  // Calls work(*this, i) for every row i of places, on several threads. Of this mesh, work may only use at(tile, i,
  // ...).
  template <class Work>
  void apply(Work&& work) {
    settle();
    for_rows([&](int row) { work(*this, row); });
  }

  // Element (r, c) of the tiles of row i: [columns of the grid]. Precondition: the tile is not shifted and, outside of
  // apply, has no deferred multiplication: call settle() first.
  // Inline, as loops over all weights call it for each.
  float* at(Tile tile, int i, int r, int c) {
    Stored& result = stored(tile);
    if (result.shift_x != 0 || result.shift_y != 0) throw_shifted(tile);
    return result.values.at(i, r, c);
  }
  // From element (r, c) of a tile to (r + 1, c).
  std::int64_t row_step(Tile tile) { return tile.columns * stored(tile).values.pitch(); }
  void settle();

  ThreadPool& pool() { return pool_; }

 private:
  struct Stored {
    ValueTiles values;
    int shift_x = 0, shift_y = 0;  // place (i, j) holds what lies at (i + shift_y, j + shift_x), modulo the grid
  };
  struct Step {
    int a_x, a_y, b_y;  // shifts
  };
  struct Products {
    Tile a, b, c;
    Operand operand = Operand::as_is;
    std::vector<Step> steps;
  };

  Stored& stored(Tile tile) {
    if (tile.id < 0 || static_cast<std::size_t>(tile.id) >= tiles_.size()) throw_no_tile(tile);
    return tiles_[static_cast<std::size_t>(tile.id)];
  }
  [[noreturn]] static void throw_no_tile(Tile tile);
  [[noreturn]] static void throw_shifted(Tile tile);
  Stored& settled(Tile tile);  // not shifted, nothing deferred
  void unshift(Stored& tile);
  void run_products();
  void run_row(int row, std::vector<float>& a_row);
  void for_rows(FunctionRef<void(int)> work);
  const LineReduce& reduction_of(int places, const AllReduceOptions& options, int chunk);

  Grid grid_;
  ThreadPool& pool_;
  std::vector<Stored> tiles_;
  std::vector<int> free_;  // released ids
  Products products_;      // deferred; none: no steps
  std::map<std::vector<int>, LineReduce> reductions_;
};

static_assert(Mesh<ValueMesh>);

}  // namespace heddle::mesh
