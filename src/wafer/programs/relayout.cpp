#include "wafer/programs/relayout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "wafer/mesh/gemm.h"
#include "wafer/mesh/load_mesh.h"
#include "wafer/programs/partition.h"

namespace heddle {
namespace {

using mesh::Axis;
using mesh::Grid;

// Which core, or place, has an index.
std::vector<int> owners(const Partition& partition) {
  std::vector<int> result;
  for (std::size_t at = 0; at < partition.source.size(); ++at) {
    const int index = partition.source[at];
    if (index == Partition::kPadding) continue;
    if (result.size() <= static_cast<std::size_t>(index)) result.resize(static_cast<std::size_t>(index) + 1);
    result[static_cast<std::size_t>(index)] = static_cast<int>(at) / partition.tile;
  }
  return result;
}

std::vector<IndexMove> moves_between(const std::vector<int>& from, const std::vector<int>& to) {
  std::map<std::pair<int, int>, std::vector<int>> moves;
  for (std::size_t index = 0; index < from.size(); ++index)
    moves[{from[index], to[index]}].push_back(static_cast<int>(index));
  std::vector<IndexMove> result;
  result.reserve(moves.size());
  for (auto& [places, indices] : moves) result.push_back({places.first, places.second, std::move(indices)});
  return result;
}

// aligned: block (r, c) of a weight lies at place (r - c, c) in prefill. turned: in decode, rows lie along x and columns
// along y.
enum class Lies : std::uint8_t { natural, aligned, aligned_and_turned };
struct PlacedTensor {
  const std::vector<IndexMove>&rows, &columns;  // along y and along x, in prefill
  Lies lies = Lies::natural;
};

struct LayerMoves {
  PromptMoves prompt;
  std::vector<IndexMove> hidden, queries, inner;

  LayerMoves(const WaferModel& model, int places, WaferMesh decode, PromptMoves of_prompt)
      : prompt(std::move(of_prompt)) {
    const auto even = [](int size, int cores) { return owners(even_partition(size, cores)); };
    const auto heads = [&](int cores) {
      return owners(head_partition(model.num_heads, model.num_kv_heads, model.head_dim, cores).queries);
    };
    hidden = moves_between(even(model.hidden, places), even(model.hidden, decode.height));
    inner = moves_between(even(model.intermediate, places), even(model.intermediate, decode.width));
    queries = moves_between(heads(places), heads(decode.width));
  }

  std::vector<PlacedTensor> tensors() const {
    const auto& keys = prompt.features;
    return {{hidden, queries, Lies::aligned},
            {hidden, keys, Lies::aligned},
            {hidden, keys, Lies::aligned},
            {queries, hidden, Lies::aligned_and_turned},  // O
            {hidden, inner, Lies::aligned},
            {hidden, inner, Lies::aligned},
            {inner, hidden, Lies::aligned_and_turned},  // down
            {prompt.tokens, keys},
            {prompt.tokens, keys}};
  }
};

// Layers that a region of prefill hands to a region of decode.
struct RegionPair {
  CoreRectangle from, to;
  int layers;
};

std::vector<RegionPair> region_pairs(const PlmrDevice& device, int num_layers, const Relayout& layout) {
  const auto regions_of = [&](int regions) {
    std::vector<int> region_of_layer;
    int region = 0;
    for (const LayerRange& range : region_layers(num_layers, regions))
      region_of_layer.insert(region_of_layer.end(), static_cast<std::size_t>(range.count()), region++);
    return region_of_layer;
  };
  const std::vector<int> before = regions_of(layout.prefill_regions), after = regions_of(layout.decode_regions);
  std::map<std::pair<int, int>, int> layers;
  for (std::size_t layer = 0; layer < before.size(); ++layer) ++layers[{before[layer], after[layer]}];
  std::vector<RegionPair> pairs;
  pairs.reserve(layers.size());
  for (const auto& [regions, count] : layers)
    pairs.push_back({region_cores(device, layout.prefill, layout.prefill_regions, regions.first),
                     region_cores(device, layout.decode, layout.decode_regions, regions.second), count});
  return pairs;
}

// Calls move(TileMove) for every block of every tensor.
template <class Move>
void for_moves(const Grid& prefill, const RegionPair& pair, const PlacedTensor& tensor,
               const std::optional<CoreRectangle>& spill, int device_width, Move&& move) {
  const auto core_at = [&](Axis axis, int place) {
    return prefill.ring_core(axis, prefill.ring_position(axis, place));
  };
  const bool turned = tensor.lies == Lies::aligned_and_turned;
  for (const IndexMove& row : tensor.rows)
    for (const IndexMove& column : tensor.columns) {
      const int places = prefill.rows;
      const int place_y = tensor.lies == Lies::natural ? row.from : (row.from - column.from % places + places) % places;
      int y = core_at(Axis::y, place_y);
      if (spill && tensor.lies == Lies::natural) y = spill->y + y % spill->height;
      const int from = pair.from.core(core_at(Axis::x, column.from), y, device_width);
      const int to =
          turned ? pair.to.core(row.to, column.to, device_width) : pair.to.core(column.to, row.to, device_width);
      const mesh::Tile block{.rows = static_cast<int>(std::ssize(row.indices)) * pair.layers,
                             .columns = static_cast<int>(std::ssize(column.indices))};
      move(mesh::TileMove{from, block, to, block});
    }
}

}  // namespace

PromptMoves prompt_moves(const WaferModel& model, WaferMesh prefill, WaferMesh decode, const KvRows& rows) {
  const int places = Grid::square(prefill, mesh::LineOrder::interleaved).columns;
  const auto keys = [&](int cores) {
    return owners(head_partition(model.num_heads, model.num_kv_heads, model.head_dim, cores).keys);
  };
  const int tile = mesh::tile_side(rows.size(), places);
  std::vector<int> place_of, row_of;
  for (std::int64_t token = 0; token < rows.size(); ++token) {
    place_of.push_back(static_cast<int>(token / tile));
    row_of.push_back(rows.row_of(token));
  }
  return {moves_between(place_of, row_of), moves_between(keys(places), keys(decode.width))};
}

double relayout_cycles(const PlmrDevice& device, const WaferModel& model, const Relayout& layout, const KvRows& rows) {
  const Grid prefill = Grid::square(layout.prefill, mesh::LineOrder::interleaved);
  const LayerMoves layer(model, prefill.columns, layout.decode,
                         prompt_moves(model, layout.prefill, layout.decode, rows));
  const std::vector<PlacedTensor> tensors = layer.tensors();
  const std::vector<RegionPair> pairs = region_pairs(device, model.num_layers, layout);
  const WaferMesh whole{static_cast<int>(device.mesh_width.value), static_cast<int>(device.mesh_height.value)};
  mesh::LoadMesh links(device, whole, 1);
  links.phase("transition");
  return links.transfer_all([&](auto&& move) {
    for (const RegionPair& pair : pairs)
      for (const PlacedTensor& tensor : tensors) for_moves(prefill, pair, tensor, layout.spill, whole.width, move);
  });
}

}  // namespace heddle
