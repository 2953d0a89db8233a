#include "wafer/mesh/value_mesh.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "schedule/transfer.h"

namespace heddle::mesh {
namespace {

using schedule::mod;

bool all_zero(const float* values, std::int64_t count) {
  return std::all_of(values, values + count, [](float value) { return value == 0; });
}

bool is_within(int index, int size) {
  return index >= 0 && index < size;
}

}  // namespace

ValueMesh::ValueMesh(const Grid& grid, ThreadPool& pool) : grid_(grid), pool_(pool) {
  heddle::require(grid.columns >= 1 && grid.rows >= 1, "a mesh of {} x {} places", grid.columns, grid.rows);
}

Tile ValueMesh::allocate(std::string_view name, int rows, int columns, Buffers /*buffers*/) {
  heddle::require(rows >= 1 && columns >= 1, "{}: a tile of {} x {}", name, rows, columns);
  Stored tile{.values = ValueTiles(grid_.columns, grid_.rows, rows, columns)};
  if (free_.empty()) {
    tiles_.push_back(std::move(tile));
    return {.id = static_cast<int>(tiles_.size()) - 1, .rows = rows, .columns = columns};
  }
  const int id = free_.back();
  free_.pop_back();
  tiles_[static_cast<std::size_t>(id)] = std::move(tile);
  return {.id = id, .rows = rows, .columns = columns};
}

void ValueMesh::release(Tile tile) {
  heddle::require(stored(tile).values.rows() > 0, "tile {} is released twice", tile.id);
  run_products();
  stored(tile) = {};
  free_.push_back(tile.id);
}

void ValueMesh::throw_no_tile(Tile tile) {
  throw_error<InvalidArgument>("no tile {} on this mesh", tile.id);
}

void ValueMesh::throw_shifted(Tile tile) {
  throw_error<InvalidArgument>("tile {} is looked at while it is shifted", tile.id);
}

ValueMesh::Stored& ValueMesh::settled(Tile tile) {
  run_products();
  Stored& result = stored(tile);
  unshift(result);
  return result;
}

void ValueMesh::settle() {
  run_products();
}

void ValueMesh::for_rows(FunctionRef<void(int)> work) {
  pool_.parallel_for(grid_.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = static_cast<int>(begin); row < end; ++row) work(row);
  });
}

void ValueMesh::unshift(Stored& tile) {
  if (tile.shift_x == 0 && tile.shift_y == 0) return;
  const ValueTiles& from = tile.values;
  ValueTiles to(from.width(), from.height(), from.rows(), from.columns());
  for_rows([&](int i) {
    for (int r = 0; r < to.rows(); ++r)
      for (int c = 0; c < to.columns(); ++c) {
        const float* row = from.at(mod(i + tile.shift_y, grid_.rows), r, c);
        std::rotate_copy(row, row + tile.shift_x, row + to.width(), to.at(i, r, c));
      }
  });
  tile = {.values = std::move(to)};
}

void ValueMesh::shift(Tile tile, Axis axis) {
  Stored& shifted = stored(tile);
  int& offset = axis == Axis::x ? shifted.shift_x : shifted.shift_y;
  offset = (offset + 1) % grid_.places(axis);
  if (tile.id == products_.c.id) run_products();
}

void ValueMesh::skew(std::initializer_list<TileAxis> tiles) {
  for (const auto& [tile, axis] : tiles) {
    Stored& skewed = settled(tile);
    const ValueTiles& from = skewed.values;
    ValueTiles to(from.width(), from.height(), from.rows(), from.columns());
    for_rows([&, axis = axis](int i) {
      for (int r = 0; r < to.rows(); ++r)
        for (int c = 0; c < to.columns(); ++c) {
          float* row = to.at(i, r, c);
          if (axis == Axis::x)
            std::rotate_copy(from.at(i, r, c), from.at(i, r, c) + i % to.width(), from.at(i, r, c) + to.width(), row);
          else
            for (int j = 0; j < to.width(); ++j) row[j] = from.at((i + j) % to.height(), r, c)[j];
        }
    });
    skewed = {.values = std::move(to)};
  }
}

void ValueMesh::broadcast(Tile from, Tile into, Axis axis, Root root) {
  const ValueTiles& source = settled(from).values;
  ValueTiles& target = settled(into).values;
  for_rows([&](int i) {
    for (int r = 0; r < target.rows(); ++r)
      for (int c = 0; c < target.columns(); ++c) {
        float* row = target.at(i, r, c);
        for (int j = 0; j < target.width(); ++j)
          row[j] = axis == Axis::x ? source.at(i, r, c)[root.in_line(i, target.width())]
                                   : source.at(root.in_line(j, target.height()), r, c)[j];
      }
  });
}

void ValueMesh::reduce(Tile from, Tile into, Axis axis, Root root) {
  const ValueTiles& source = settled(from).values;
  ValueTiles& target = settled(into).values;
  const int places = grid_.places(axis), lines = grid_.places(across(axis));
  pool_.parallel_for(lines, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(places));
    for (auto line = static_cast<int>(begin); line < end; ++line) {
      const LineReduce chain = chain_to(root.in_line(line, places), places);
      for (int r = 0; r < target.rows(); ++r)
        for (int c = 0; c < target.columns(); ++c) {
          for (int place = 0; place < places; ++place)
            values[static_cast<std::size_t>(place)] =
                axis == Axis::x ? source.at(line, r, c)[place] : source.at(place, r, c)[line];
          reduce_line(chain, values.data(), 1, 1, Reduction::sum);
          (axis == Axis::x ? target.at(line, r, c)[chain.root] : target.at(chain.root, r, c)[line]) =
              values[static_cast<std::size_t>(chain.root)];
        }
    }
  });
}

void ValueMesh::gather(Tile from, std::span<const Tile> all, Axis axis) {
  for (std::size_t k = 0; k < all.size(); ++k) broadcast(from, all[k], axis, Root::at(static_cast<int>(k)));
}

void ValueMesh::exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves) {
  heddle::require(from.id != into.id && from.columns == into.columns, "an exchange from tile {} into tile {}", from.id,
                  into.id);
  const ValueTiles& source = settled(from).values;
  ValueTiles& target = settled(into).values;
  for (const RowMove& m : moves) {
    heddle::require(is_within(m.from_place, grid_.places(axis)) && is_within(m.to_place, grid_.places(axis)) &&
                        is_within(m.from_row, source.rows()) && is_within(m.to_row, target.rows()),
                    "an exchange of row {} of place {} into row {} of place {}: there is no such row", m.from_row,
                    m.from_place, m.to_row, m.to_place);
    for (int c = 0; c < target.columns(); ++c)
      if (axis == Axis::y)
        std::copy_n(source.at(m.from_place, m.from_row, c), target.width(), target.at(m.to_place, m.to_row, c));
      else
        for (int i = 0; i < target.height(); ++i)
          target.at(i, m.to_row, c)[m.to_place] = source.at(i, m.from_row, c)[m.from_place];
  }
}

const LineReduce& ValueMesh::reduction_of(int places, const AllReduceOptions& options, int chunk) {
  const std::vector<int> key{places, static_cast<int>(options.method), options.phases, chunk};
  const auto found = reductions_.find(key);
  return found != reductions_.end() ? found->second
                                    : reductions_.emplace(key, line_reduce(places, options, chunk)).first->second;
}

void ValueMesh::all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options) {
  ValueTiles& values = settled(tile).values;
  const int places = grid_.places(axis), elements = values.rows() * values.columns();
  std::vector<const LineReduce*> lines;  // by element: a ring cuts them into as many chunks as places
  for (int e = 0; e < elements; ++e) {
    const int chunk = options.method == WaferAllReduce::ring ? e / schedule::ceil_div(elements, places) : 0;
    lines.push_back(&reduction_of(places, options, chunk));
  }
  if (axis == Axis::y) {
    pool_.parallel_for(elements, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto e = static_cast<int>(begin); e < end; ++e) {
        const LineReduce& line = *lines[static_cast<std::size_t>(e)];
        float* first = values.at(0, 0, 0) + e * values.pitch();
        reduce_line(line, first, values.row_values(), values.width(), reduction);
        const float* result = first + line.root * values.row_values();
        for (int i = 0; i < places; ++i)
          if (i != line.root) std::copy_n(result, values.width(), first + i * values.row_values());
      }
    });
  } else {
    for_rows([&](int i) {
      for (int e = 0; e < elements; ++e) {
        const LineReduce& line = *lines[static_cast<std::size_t>(e)];
        float* row = values.at(i, 0, 0) + e * values.pitch();
        reduce_line(line, row, 1, 1, reduction);
        std::fill_n(row, places, row[line.root]);
      }
    });
  }
}

void ValueMesh::clear(Tile tile) {
  run_products();
  Stored& cleared = stored(tile);
  cleared.shift_x = cleared.shift_y = 0;
  for_rows([&](int i) { std::fill_n(cleared.values.at(i, 0, 0), cleared.values.row_values(), 0.0F); });
}

void ValueMesh::multiply_add(Tile a, Tile b, Tile c, Operand operand) {
  const bool fits = operand == Operand::as_is ? a.columns == b.rows && c.columns == b.columns
                                              : a.columns == b.columns && c.columns == b.rows;
  heddle::require(fits && a.rows == c.rows && c.id != a.id && c.id != b.id,
                  "multiply_add: tiles {} x {}, {} x {} and {} x {} do not fit", a.rows, a.columns, b.rows, b.columns,
                  c.rows, c.columns);
  const bool same = a.id == products_.a.id && b.id == products_.b.id && c.id == products_.c.id &&
                    operand == products_.operand && !products_.steps.empty();
  if (!same) {
    settled(c);
    products_ = {.a = a, .b = b, .c = c, .operand = operand, .steps = {}};
  }
  if (stored(b).shift_x != 0) {  // no program does that
    run_products();
    unshift(stored(b));
    products_ = {.a = a, .b = b, .c = c, .operand = operand, .steps = {}};
  }
  products_.steps.push_back({.a_x = stored(a).shift_x, .a_y = stored(a).shift_y, .b_y = stored(b).shift_y});
}

void ValueMesh::run_products() {
  if (products_.steps.empty()) return;
  pool_.parallel_for(grid_.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> a_row;
    for (auto row = static_cast<int>(begin); row < end; ++row) run_row(row, a_row);
  });
  products_ = {};
}

// Takes all steps of one row. A's row is stored twice side by side, so that the places are contiguous from any offset.
void ValueMesh::run_row(int row, std::vector<float>& a_row) {
  const ValueTiles& a = stored(products_.a).values;
  const ValueTiles& b = stored(products_.b).values;
  ValueTiles& c = stored(products_.c).values;
  const bool transposed = products_.operand == Operand::transposed;
  const bool shifts = std::ranges::any_of(products_.steps, [](const Step& step) { return step.a_x != 0; });
  const std::int64_t twice = value_pitch(2 * a.width()) + 16;
  int loaded = -1;
  bool zero = false;
  for (const Step& step : products_.steps) {
    const int a_y = mod(row + step.a_y, grid_.rows);
    if (a_y != loaded) {
      loaded = a_y;
      zero = all_zero(a.at(a_y, 0, 0), a.row_values());
      if (shifts && !zero) {
        a_row.resize(static_cast<std::size_t>(a.rows() * a.columns() * twice));
        for (int e = 0; e < a.rows() * a.columns(); ++e) {
          const float* from = a.at(a_y, 0, 0) + e * a.pitch();
          std::copy_n(from, a.width(), a_row.data() + e * twice);
          std::copy_n(from, a.width(), a_row.data() + e * twice + a.width());
        }
      }
    }
    if (zero) continue;
    add_tile_product({.a = shifts ? a_row.data() + step.a_x : a.at(a_y, 0, 0),
                      .b = b.at(mod(row + step.b_y, grid_.rows), 0, 0),
                      .c = c.at(row, 0, 0),
                      .a_pitch = shifts ? twice : a.pitch(),
                      .b_step_k = transposed ? b.pitch() : b.columns() * b.pitch(),
                      .b_step_n = transposed ? b.columns() * b.pitch() : b.pitch(),
                      .c_pitch = c.pitch(),
                      .m = c.rows(),
                      .k = a.columns(),
                      .n = c.columns(),
                      .places = grid_.columns});
  }
}

}  // namespace heddle::mesh
