#include "wafer/programs/relayout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/checked.h"
#include "wafer/mesh/gemm.h"
#include "wafer/mesh/load_mesh.h"
#include "wafer/mesh/relay_mesh.h"

namespace heddle {
namespace {

using mesh::Axis;
using mesh::Grid;

// Which core, or place, has an index, and where in its tile.
struct Owners {
  std::vector<int> core, within;
};

Owners owners(const Partition& partition) {
  Owners result;
  for (std::size_t at = 0; at < partition.source.size(); ++at) {
    const int index = partition.source[at];
    if (index == Partition::kPadding) continue;
    const auto slot = static_cast<std::size_t>(index);
    if (result.core.size() <= slot) {
      result.core.resize(slot + 1);
      result.within.resize(slot + 1);
    }
    result.core[slot] = static_cast<int>(at) / partition.tile;
    result.within[slot] = static_cast<int>(at) % partition.tile;
  }
  return result;
}

AxisMoves moves_between(Owners from, Owners to) {
  std::map<std::pair<int, int>, std::vector<int>> moves;
  for (std::size_t index = 0; index < from.core.size(); ++index)
    moves[{from.core[index], to.core[index]}].push_back(static_cast<int>(index));
  AxisMoves result{.moves = {}, .before = std::move(from.within), .after = std::move(to.within)};
  result.moves.reserve(moves.size());
  for (auto& [places, indices] : moves) result.moves.push_back({places.first, places.second, std::move(indices)});
  return result;
}

AxisMoves token_moves(int places, const KvRows& rows) {
  const int tile = mesh::tile_side(rows.size(), places);
  Owners from, to;
  for (std::int64_t token = 0; token < rows.size(); ++token) {
    from.core.push_back(static_cast<int>(token / tile));
    from.within.push_back(static_cast<int>(token % tile));
    to.core.push_back(rows.row_of(token));
  }
  return moves_between(std::move(from), std::move(to));
}

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

class Transition {
 public:
  Transition(const PlmrDevice& device, const WaferModel& model, const Relayout& layout, const KvRows& rows)
      : layout_(layout),
        prefill_(Grid::square(layout.prefill, mesh::LineOrder::interleaved)),
        moves_(model, layout.prefill, layout.decode, rows),
        pairs_(region_pairs(device, model.num_layers, layout)) {}

  // Calls move(RelayMessage) for every block of every tensor.
  template <class Move>
  void for_messages(Move&& move) const {
    for (const RegionPair& pair : pairs_) {
      for (const WeightMoves& weight : moves_.weights()) weight_messages(pair, weight, move);
      for (int kv = 0; kv < 2; ++kv) kv_messages(pair, move);
    }
    hidden_messages(move);
  }

 private:
  DeviceCore place(const CoreRectangle& region, int place_x, int place_y) const {
    return region.on_device(prefill_.ring_core(Axis::x, prefill_.ring_position(Axis::x, place_x)),
                            prefill_.ring_core(Axis::y, prefill_.ring_position(Axis::y, place_y)));
  }
  static double bytes_of(const IndexMove& row, const IndexMove& column, int layers) {
    return kValueBytes * static_cast<double>(row.indices.size() * column.indices.size()) * layers;
  }

  template <class Move>
  void weight_messages(const RegionPair& pair, const WeightMoves& weight, Move&& move) const {
    for (const IndexMove& row : weight.rows.moves)
      for (const IndexMove& column : weight.columns.moves) {
        const int y = WeightMoves::place_y(row, column, moves_.places);
        move(mesh::RelayMessage{place(pair.from, column.from, y),
                                weight.lies == Lies::aligned_and_turned ? pair.to.on_device(row.to, column.to)
                                                                        : pair.to.on_device(column.to, row.to),
                                bytes_of(row, column, pair.layers)});
      }
  }
  // Keys, or values; from the idle cores that have them.
  template <class Move>
  void kv_messages(const RegionPair& pair, Move&& move) const {
    for (const IndexMove& token : moves_.tokens.moves)
      for (const IndexMove& feature : moves_.keys.moves) {
        DeviceCore from = place(pair.from, feature.from, token.from);
        if (const auto& spill = layout_.spill) from.y = spill->idle_row(from.y);
        move(mesh::RelayMessage{from, pair.to.on_device(feature.to, token.to), bytes_of(token, feature, pair.layers)});
      }
  }
  // The last token's hidden state, from the last region of prefill to the first column of decode's last.
  template <class Move>
  void hidden_messages(Move&& move) const {
    const int last = moves_.tokens.moves.back().from;
    for (const IndexMove& feature : moves_.hidden.moves)
      move(mesh::RelayMessage{place(pairs_.back().from, feature.from, last), pairs_.back().to.on_device(0, feature.to),
                              kValueBytes * static_cast<double>(feature.indices.size())});
  }

  const Relayout& layout_;
  Grid prefill_;
  LayerMoves moves_;
  std::vector<RegionPair> pairs_;
};

}  // namespace

LayerMoves::LayerMoves(const WaferModel& model, WaferMesh prefill, WaferMesh decode, const KvRows& rows)
    : places(Grid::square(prefill, mesh::LineOrder::interleaved).columns) {
  const auto even = [](int size, int cores) { return owners(even_partition(size, cores)); };
  const auto heads = [&](int cores) {
    return head_partition(model.num_heads, model.num_kv_heads, model.head_dim, cores);
  };
  tokens = token_moves(places, rows);
  keys = moves_between(owners(heads(places).keys), owners(heads(decode.width).keys));
  queries = moves_between(owners(heads(places).queries), owners(heads(decode.width).queries));
  hidden = moves_between(even(model.hidden, places), even(model.hidden, decode.height));
  inner = moves_between(even(model.intermediate, places), even(model.intermediate, decode.width));
}

RelayoutCost run_relayout(const PlmrDevice& device, const WaferModel& model, const Relayout& layout, const KvRows& rows,
                          std::int64_t most_hops) {
  const Transition transition(device, model, layout, rows);
  std::int64_t hops = 0, values = 0;
  transition.for_messages([&](const mesh::RelayMessage& message) {
    hops += mesh::hops_of({&message, 1});
    values += std::llround(message.bytes / kValueBytes);
  });
  if (hops <= most_hops) {
    std::vector<mesh::RelayMessage> messages;
    transition.for_messages([&](const mesh::RelayMessage& message) { messages.push_back(message); });
    const auto on = [&](const PlmrDevice& as) { return mesh::run_relays(as, messages, [](std::size_t) {}); };
    return {on(device), on(without_fitted_costs(device)), Basis::simulated, values};
  }
  const WaferMesh whole{static_cast<int>(device.mesh_width.value), static_cast<int>(device.mesh_height.value)};
  mesh::LoadMesh links(device, whole, 1);
  links.phase("transition");
  links.transfer_all([&](auto&& move) {
    transition.for_messages([&](const mesh::RelayMessage& message) {
      const mesh::Tile block{.rows = 1, .columns = narrow<int>(std::llround(message.bytes / kValueBytes), "block")};
      move(mesh::TileMove{message.from.y * whole.width + message.from.x, block,
                          message.to.y * whole.width + message.to.x, block});
    });
  });
  return {links.transfer_cycles(), links.hops_and_words(), Basis::counted, values};
}

}  // namespace heddle
