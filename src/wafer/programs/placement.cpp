#include "wafer/programs/placement.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/error.h"

namespace heddle {
namespace {

using mesh::Axis;
using mesh::Tile;
using mesh::TimedMesh;

// Output by output, some rows of cores at a time: contiguous weights go to cores in the same column.
template <class Element>
void place_along_y(TimedMesh& mesh, Tile tile, const Weight& weight, const WeightPlacement& placement) {
  constexpr std::int64_t kRowsAtOnce = 8;
  const std::int64_t step = mesh.row_step(tile);
  mesh.pool().parallel_for(placement.in.cores, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t place = 0; place < placement.out.source.size(); ++place) {
      const int output = placement.out.source[place];
      if (output == Partition::kPadding) continue;
      const auto* row = static_cast<const Element*>(weight.row(placement.first_row + output));
      const auto n = static_cast<int>(place) % tile.columns, j = static_cast<int>(place) / tile.columns;
      for (auto i = static_cast<int>(begin); i < end; ++i) {
        const int* inputs = placement.in.source.data() + static_cast<std::ptrdiff_t>(i) * tile.rows;
        float* first = mesh.at(tile, i, 0, n) + j;
        for (int k = 0; k < tile.rows; ++k)
          if (inputs[k] >= 0) first[k * step] = to_float(row[inputs[k]]);
      }
    }
  });
}

template <class Element>
void place_along_x(TimedMesh& mesh, Tile tile, const Weight& weight, const WeightPlacement& placement) {
  mesh.pool().parallel_for(placement.out.cores, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto place = begin * tile.columns; place < end * tile.columns; ++place) {
      const int output = placement.out.source[static_cast<std::size_t>(place)];
      if (output == Partition::kPadding) continue;
      const auto* row = static_cast<const Element*>(weight.row(placement.first_row + output));
      const auto i = static_cast<int>(place / tile.columns), n = static_cast<int>(place % tile.columns);
      for (int k = 0; k < tile.rows; ++k) {
        float* to = mesh.at(tile, i, k, n);
        for (int core = 0; core < placement.in.cores; ++core)
          if (const int input = placement.in.source[static_cast<std::size_t>(core * tile.rows + k)]; input >= 0)
            to[core] = to_float(row[input]);
      }
    }
  });
}

template <class Element>
void place_as(TimedMesh& mesh, Tile tile, const Weight& weight, const WeightPlacement& placement) {
  if (placement.in_axis == Axis::y)
    place_along_y<Element>(mesh, tile, weight, placement);
  else
    place_along_x<Element>(mesh, tile, weight, placement);
}

// Calls action(const Element*) with the weight's element type.
template <class Action>
void for_dtype(DType dtype, Action action) {
  switch (dtype) {
    case DType::float32:
      return action(float{});
    case DType::bfloat16:
      return action(bfloat16{});
    case DType::float16:
      return action(float16{});
  }
  throw_error<InvalidArgument>("a weight of an unknown dtype");
}

}  // namespace

Tile place_weight(TimedMesh& mesh, const Weight& weight, const WeightPlacement& placement) {
  const bool along_y = placement.in_axis == Axis::y;
  require(placement.in.cores == mesh.grid().places(placement.in_axis) &&
              placement.out.cores == mesh.grid().places(along_y ? Axis::x : Axis::y),
          "a weight for {} x {} cores does not fit the mesh", placement.in.cores, placement.out.cores);
  const Tile tile = mesh.allocate("weight", placement.in.tile, placement.out.tile, mesh::Buffers::one);
  for_dtype(weight.dtype, [&](auto element) { place_as<decltype(element)>(mesh, tile, weight, placement); });
  return tile;
}

Tile place_vector(TimedMesh& mesh, const float* vector, const Partition& partition, Axis axis) {
  const Tile tile = mesh.allocate("vector", 1, partition.tile, mesh::Buffers::one);
  load_vector(mesh, tile, vector, partition, axis);
  return tile;
}

void load_vector(TimedMesh& mesh, Tile tile, const float* vector, const Partition& partition, Axis axis) {
  mesh.settle();
  for (std::size_t place = 0; place < partition.source.size(); ++place) {
    const int source = partition.source[place];
    if (source == Partition::kPadding) continue;
    const int c = static_cast<int>(place) % tile.columns, core = static_cast<int>(place) / tile.columns;
    if (axis == Axis::y)
      std::fill_n(mesh.at(tile, core, 0, c), mesh.grid().columns, vector[source]);
    else
      for (int i = 0; i < mesh.grid().rows; ++i) mesh.at(tile, i, 0, c)[core] = vector[source];
  }
}

std::vector<float> weight_row(const Weight& weight, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(weight.in_features));
  for_dtype(weight.dtype, [&](auto element) {
    const auto* from = static_cast<const decltype(element)*>(weight.row(row));
    std::transform(from, from + weight.in_features, values.begin(), [](auto value) { return to_float(value); });
  });
  return values;
}

}  // namespace heddle
