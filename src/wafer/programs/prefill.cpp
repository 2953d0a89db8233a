#include "wafer/programs/prefill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "wafer/mesh/gemm.h"
#include "wafer/programs/hand_over.h"
#include "wafer/programs/kv_spill.h"
#include "wafer/programs/placement.h"

namespace heddle {
namespace {

using mesh::Axis;
using mesh::Buffers;
using mesh::GemmPlacement;
using mesh::Grid;
using mesh::LineOrder;
using mesh::Placement;
using mesh::Reduction;
using mesh::Tile;
using mesh::TimedMesh;
using mesh::ValueMesh;

constexpr const char* kEarlierKv = "keys and values of earlier layers";
constexpr double kSoftmaxPasses = 3;  // over a head's scores: the maximum, exponentials and their sum, the division

class Prefill {
 public:
  Prefill(const WaferWeights& weights, const Grid& grid, std::span<const std::int32_t> tokens,
          const WaferProgram& program, ThreadPool& pool)
      : weights_(weights),
        program_(program),
        num_tokens_(std::ssize(tokens)),
        hidden_(even_partition(weights.shape.hidden, grid.columns)),
        intermediate_(even_partition(weights.shape.intermediate, grid.columns)),
        heads_(
            head_partition(weights.shape.num_heads, weights.shape.num_kv_heads, weights.shape.head_dim, grid.columns)),
        pieces_(heads_.pieces()),
        mesh_(program.device, grid, pool, program.all_reduce.sync) {
    if (program.spill) spill_.emplace(grid, *program.spill);
    mesh_.phase("prefill");
    hold_weights();
    x_ = activations(hidden_.tile);
    embed(tokens);
  }

  WaferPrompt run() {
    WaferPrompt prompt{.num_tokens = num_tokens_,
                       .cores = mesh_.grid().cores,
                       .places = mesh_.grid().columns,
                       .keys = {},
                       .values = {},
                       .hidden = {},
                       .cost = {},
                       .idle_core_bytes = 0};
    const std::vector<LayerRange> regions = region_layers(weights_.shape.num_layers, program_.regions);
    for (std::size_t region = 0; region < regions.size(); ++region) {
      if (region > 0) hand_over(static_cast<int>(region) - 1);
      for (int layer = regions[region].first; layer < regions[region].last; ++layer) {
        attention_block(weights_.layers[static_cast<std::size_t>(layer)], prompt);
        feed_forward_block(weights_.layers[static_cast<std::size_t>(layer)]);
      }
    }
    prompt.hidden = tile_row_of(x_, num_tokens_ - 1);
    prompt.cost = mesh_.take_cost();
    if (spill_) prompt.idle_core_bytes = spill_->core_bytes();
    return prompt;
  }

 private:
  int token_tile() const { return mesh::tile_side(num_tokens_, mesh_.grid().rows); }
  Tile activations(int columns, Buffers buffers = Buffers::one) {
    return mesh_.allocate("activations", token_tile(), columns, buffers);
  }

  // For the region with the most layers. GEMMs work on copies of a layer's weights; these also serve as the second
  // buffer of a shift.
  void hold_weights() {
    const double layer = 1.0 * hidden_.tile * (heads_.queries.tile * 2 + heads_.keys.tile * 2 + 3 * intermediate_.tile);
    const int layers = region_layers(weights_.shape.num_layers, program_.regions).front().count();
    mesh_.hold("weights", kValueBytes * layer * layers * mesh_.grid().tiles_a_core());
  }

  // The hidden state goes to the same core of the next region, whose cores hold no keys and values yet. Along x from
  // neighbour to neighbour; along y there is no sum whose routes could serve. All lines are alike: one of them is timed.
  void hand_over(int region) {
    kept_layers_ = 0;
    mesh_.hold(kEarlierKv, 0);
    if (spill_) spill_->begin_region();
    const Grid& grid = mesh_.grid();
    const HandOver way(program_.device, grid.cores, program_.regions, region);
    const bool along_x = way.axis == Axis::x;
    if (along_x)
      mesh_.take_neighbours(Axis::x, program_.all_reduce);
    else
      mesh_.take_relay(Axis::y);
    const int cores = grid.cores_along(way.axis), places = grid.tiles_along(way.axis);
    const double values = 1.0 * x_.rows * x_.columns * grid.tiles_a_core();
    std::vector<mesh::RelayMessage> messages;
    for (int position = 0; position < cores; ++position) {
      const int core = grid.ring_core(way.axis, position);
      messages.push_back(along_x ? way.message(core, 0, core, 0, values) : way.message(0, core, 0, core, values));
    }
    const Tile arrived = mesh_.allocate_held(x_.rows, x_.columns);
    mesh_.account("");
    mesh_.relay("hand-over", messages, [&](std::size_t position) {
      const int first = static_cast<int>(position) * places;
      for_elements(x_, [&](int i, int r, int c) {
        if (along_x)
          std::copy_n(mesh_.at(x_, i, r, c) + first, places, mesh_.at(arrived, i, r, c) + first);
        else if (i >= first && i < first + places)
          std::copy_n(mesh_.at(x_, i, r, c), grid.columns, mesh_.at(arrived, i, r, c));
      });
    });
    for_elements(
        x_, [&](int i, int r, int c) { std::copy_n(mesh_.at(arrived, i, r, c), grid.columns, mesh_.at(x_, i, r, c)); });
    mesh_.release(arrived);
  }

  // action(row of places, row of a tile, its column)
  template <class Action>
  void for_elements(Tile tile, Action action) {
    for (int i = 0; i < mesh_.grid().rows; ++i)
      for (int r = 0; r < tile.rows; ++r)
        for (int c = 0; c < tile.columns; ++c) action(i, r, c);
  }

  void embed(std::span<const std::int32_t> tokens) {
    for (std::int64_t token = 0; token < num_tokens_; ++token) {
      const std::vector<float> row = weight_row(weights_.embedding, tokens[static_cast<std::size_t>(token)]);
      for (std::size_t place = 0; place < hidden_.source.size(); ++place)
        if (const int source = hidden_.source[place]; source >= 0)
          element(x_, token, static_cast<int>(place)) = row[static_cast<std::size_t>(source)];
    }
  }

  // Column `place` of a token's row, counted over the whole mesh.
  float& element(Tile tile, std::int64_t token, int place) {
    return mesh_.at(tile, static_cast<int>(token / tile.rows), static_cast<int>(token % tile.rows),
                    place % tile.columns)[place / tile.columns];
  }

  // [columns of a tile][places], of a token.
  std::vector<float> tile_row_of(Tile tile, std::int64_t token) {
    mesh_.settle();
    std::vector<float> values;
    for (int c = 0; c < tile.columns; ++c) {
      const float* row = &element(tile, token, c);
      values.insert(values.end(), row, row + mesh_.grid().columns);
    }
    return values;
  }

  // [tokens][columns of a tile][places].
  std::vector<float> tokens_of(Tile tile) {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(num_tokens_ * tile.columns * mesh_.grid().columns));
    for (std::int64_t token = 0; token < num_tokens_; ++token) {
      const std::vector<float> row = tile_row_of(tile, token);
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }

  // A MeshGEMM with a weight. The first GEMM that takes x aligns it; it stays aligned.
  Tile product(std::string_view name, Tile x, Placement x_placement, const Weight& weight,
               const WeightPlacement& placement) {
    mesh_.account(name);
    const Tile w = place_weight(mesh_, weight, placement);
    mesh_.place_skewed(w, Axis::y);
    const Tile shifted = mesh_.allocate("second buffer", x.rows, x.columns, Buffers::one);
    const Tile y = activations(w.columns);
    mesh_gemm(mesh_, x, w, y, GemmPlacement{.a = x_placement, .b = Placement::aligned});
    if (weight.bias != nullptr) {
      const Tile bias = place_vector(mesh_, weight.bias + placement.first_row, placement.out, Axis::x);
      add(mesh_, y, bias);
      mesh_.release(bias);
    }
    mesh_.settle();
    for (const Tile tile : {w, shifted}) mesh_.release(tile);
    return y;
  }

  Tile norm(const Norm& norm) {
    mesh_.account("norms");
    const Tile y = activations(x_.columns);
    const Tile weight = place_vector(mesh_, static_cast<const float*>(norm.weight), hidden_, Axis::x);
    rms_norm(mesh_, program_.all_reduce, x_, weight, y, Axis::x, weights_.shape.hidden, norm.eps);
    mesh_.release(weight);
    return y;
  }

  void attention_block(const WaferLayer& layer, WaferPrompt& prompt) {
    const WaferModel& shape = weights_.shape;
    const std::int64_t first_k = std::int64_t{shape.num_heads} * shape.head_dim;
    const std::int64_t first_v = first_k + std::int64_t{shape.num_kv_heads} * shape.head_dim;
    const Tile normed = norm(layer.attention_norm);
    const Tile q = product("Q, K, V", normed, Placement::natural, layer.qkv, {.in = hidden_, .out = heads_.queries});
    const Tile k = product("Q, K, V", normed, Placement::aligned, layer.qkv,
                           {.in = hidden_, .out = heads_.keys, .first_row = first_k});
    const Tile v = product("Q, K, V", normed, Placement::aligned, layer.qkv,
                           {.in = hidden_, .out = heads_.keys, .first_row = first_v});
    if (layer.query_norm.weight != nullptr) {
      normalize(q, layer.query_norm, heads_.queries, heads_.query_columns(), shape.num_heads);
      normalize(k, layer.key_norm, heads_.keys, heads_.key_columns(), shape.num_kv_heads);
    }
    const Positions positions{.first = 0, .per_row = token_tile()};
    mesh_.account("rotation");
    rotate(mesh_, q, heads_, weights_.inv_freq, weights_.rope_scale, positions);
    rotate(mesh_, k, heads_, weights_.inv_freq, weights_.rope_scale, positions);
    store_keys_and_values(k, v, prompt);

    const Tile attended = activations(q.columns);
    mesh_.account("values");
    mesh_.skew({{v, Axis::y}});  // once for all heads
    attend_all(layer.window, q, k, v, attended);
    const Tile delta = product("O", attended, Placement::natural, layer.output, {.in = heads_.queries, .out = hidden_});
    mesh_.account("residuals");
    add(mesh_, x_, delta);
    for (const Tile tile : {normed, q, k, v, attended, delta}) mesh_.release(tile);
    keep_keys_and_values();
  }

  // For the transition: from these cores or from the idle ones, to which they go now.
  void store_keys_and_values(Tile k, Tile v, WaferPrompt& prompt) {
    if (!spill_) {
      prompt.keys.push_back(tokens_of(k));
      prompt.values.push_back(tokens_of(v));
      return;
    }
    mesh_.account("");
    mesh_.take_relay(Axis::y);
    spill_->send(mesh_, k, v);
    prompt.keys.push_back(spill_->keys(num_tokens_));
    prompt.values.push_back(spill_->values(num_tokens_));
  }

  // Unless they were spilled, this layer's stay until the transition, beside those of the region's earlier layers.
  void keep_keys_and_values() {
    if (spill_) return;
    const double values = 2.0 * token_tile() * heads_.keys.tile * mesh_.grid().tiles_a_core();
    mesh_.hold(kEarlierKv, kValueBytes * values * ++kept_layers_);
  }

  void normalize(Tile x, const Norm& norm, const Partition& partition, const std::vector<HeadColumns>& columns,
                 int num_heads) {
    const int head_dim = weights_.shape.head_dim;
    const Tile weight =
        place_vector(mesh_, static_cast<const float*>(norm.weight), within_head(partition, head_dim), Axis::x);
    norm_heads(mesh_, program_.all_reduce, x, weight, columns, num_heads, head_dim, norm.eps);
    mesh_.release(weight);
  }

  // A head lies in a band of columns and is multiplied there ("locally after grouping by head dimensions", WaferLLM,
  // 4.4): all KV heads at the same time, the query heads that share one after another. This program computes values
  // head by head over the whole mesh, with the columns of other heads zero. It therefore counts the time of one KV head
  // only, but with sums along the whole row, and all of the softmax, since a core has scores of every KV head. On fewer
  // columns than KV heads it counts as many heads as share a column. As far as these cycles stand for heads that run
  // beside, their basis is "counted".
  void attend_all(int window, Tile q, Tile k, Tile v, Tile attended) {
    const int kv_heads = weights_.shape.num_kv_heads, sharing = weights_.shape.num_heads / kv_heads;
    const int in_turn = (kv_heads - 1) / mesh_.grid().columns + 1;  // KV heads that run one after the other
    const Basis timed = in_turn < kv_heads ? Basis::counted : Basis::simulated;
    const double scores = 1.0 * token_tile() * token_tile();
    mesh_.hold("scores of the other KV heads", kValueBytes * (kv_heads - 1) * scores * mesh_.grid().tiles_a_core());
    for (int head = 0; head < weights_.shape.num_heads; ++head) {
      if (head / sharing < in_turn) {
        attend(head, window, q, k, v, attended, timed);
        continue;
      }
      mesh_.beside([&] { attend(head, window, q, k, v, attended, timed); });
      mesh_.account("softmax");
      mesh_.spend({.values = kSoftmaxPasses * scores});
    }
    mesh_.hold("scores of the other KV heads", 0);
  }

  // Computes the columns of one head of `attended`.
  void attend(int head, int window, Tile q, Tile k, Tile v, Tile attended, Basis timed) {
    mesh_.account("scores", timed);
    const Tile query = activations(k.columns);
    copy_head(head, q, query, [](const auto& piece) { return std::pair(piece.query, piece.key); });
    const Tile partial = activations(token_tile(), Buffers::two), scores = activations(token_tile(), Buffers::two);
    const Tile shifted = mesh_.allocate("second buffer", k.rows, k.columns, Buffers::one);
    gemm_t(mesh_, query, k, partial, scores);
    mesh_.account("softmax", timed);
    softmax(scores, window);
    mesh_.account("values", timed);
    const Tile values = activations(v.columns);
    mesh_gemm(mesh_, scores, v, values, {.a = Placement::natural, .b = Placement::aligned});
    copy_head(head, values, attended, [](const auto& piece) { return std::pair(piece.key, piece.query); });
    for (const Tile tile : {query, partial, shifted, scores, values}) mesh_.release(tile);
  }

  // columns(piece) gives the source and the destination column.
  template <class Columns>
  void copy_head(int head, Tile from, Tile to, Columns columns) {
    mesh_.apply({.values = 1.0 * from.rows * from.columns}, [&](ValueMesh& values, int i) {
      for (const HeadPartition::Piece& piece : pieces_) {
        if (piece.head != head) continue;
        const auto [source, target] = columns(piece);
        for (int r = 0; r < from.rows; ++r)
          for (const int second : {0, 1})
            std::copy(values.at(from, i, r, source + second) + piece.begin,
                      values.at(from, i, r, source + second) + piece.end,
                      values.at(to, i, r, target + second) + piece.begin);
      }
    });
  }

  // Softmax of scores L_y L_x, in place. A token attends to itself and to earlier tokens, at most `window` in all; rows
  // beyond the end of the prompt become zero.
  void softmax(Tile scores, int window) {
    const int places = mesh_.grid().columns;
    const float scale = 1 / std::sqrt(static_cast<float>(weights_.shape.head_dim));
    const Positions row_positions{.first = 0, .per_row = scores.rows};
    // `token` attends to column c of the places [first, last).
    const auto seen = [&](std::int64_t token, int c) {
      const std::int64_t oldest = window > 0 ? std::max<std::int64_t>(0, token - window + 1) : 0;
      const auto places_below = [&](std::int64_t t) {  // places whose column c lies below t
        return static_cast<int>(std::clamp<std::int64_t>((t - c + scores.columns - 1) / scores.columns, 0, places));
      };
      return token < num_tokens_ ? std::pair(places_below(oldest), places_below(token + 1)) : std::pair(0, 0);
    };
    const Tile highest = mesh_.allocate("highest score", scores.rows, 1, Buffers::two);
    mesh_.apply({.values = 1.0 * scores.rows * scores.columns}, [&](ValueMesh& values, int i) {
      for (int r = 0; r < scores.rows; ++r) {
        float* high = values.at(highest, i, r, 0);
        std::fill_n(high, places, -std::numeric_limits<float>::infinity());
        for (int c = 0; c < scores.columns; ++c) {
          const auto [first, last] = seen(row_positions.of(i, r), c);
          for (int j = first; j < last; ++j) high[j] = std::max(high[j], scale * values.at(scores, i, r, c)[j]);
        }
      }
    });
    mesh_.all_reduce(highest, Axis::x, Reduction::maximum, program_.all_reduce);
    const Tile sum = mesh_.allocate("sum of exponentials", scores.rows, 1, Buffers::two);
    mesh_.apply({.values = 1.0 * scores.rows * scores.columns}, [&](ValueMesh& values, int i) {
      for (int r = 0; r < scores.rows; ++r) {
        const float* high = values.at(highest, i, r, 0);
        float* total = values.at(sum, i, r, 0);
        for (int c = 0; c < scores.columns; ++c) {
          const auto [first, last] = seen(row_positions.of(i, r), c);
          float* score = values.at(scores, i, r, c);
          std::fill_n(score, first, 0.0F);
          for (int j = first; j < last; ++j) {
            score[j] = std::exp(scale * score[j] - high[j]);
            total[j] += score[j];
          }
          std::fill(score + last, score + places, 0.0F);
        }
      }
    });
    mesh_.all_reduce(sum, Axis::x, Reduction::sum, program_.all_reduce);
    mesh_.apply({.values = 1.0 * scores.rows * scores.columns}, [&](ValueMesh& values, int i) {
      for (int r = 0; r < scores.rows; ++r) {
        if (row_positions.of(i, r) >= num_tokens_) continue;
        const float* total = values.at(sum, i, r, 0);
        for (int c = 0; c < scores.columns; ++c) {
          float* score = values.at(scores, i, r, c);
          for (int j = 0; j < places; ++j) score[j] /= total[j];
        }
      }
    });
    mesh_.release(highest);
    mesh_.release(sum);
  }

  void feed_forward_block(const WaferLayer& layer) {
    const Tile normed = norm(layer.feed_forward_norm);
    const Tile gate =
        product("gate, up", normed, Placement::natural, layer.gate_up, {.in = hidden_, .out = intermediate_});
    const Tile up = product("gate, up", normed, Placement::aligned, layer.gate_up,
                            {.in = hidden_, .out = intermediate_, .first_row = weights_.shape.intermediate});
    mesh_.account("SwiGLU");
    swiglu(mesh_, gate, up, gate);
    const Tile delta = product("down", gate, Placement::natural, layer.down, {.in = intermediate_, .out = hidden_});
    mesh_.account("residuals");
    add(mesh_, x_, delta);
    for (const Tile tile : {normed, gate, up, delta}) mesh_.release(tile);
  }

  const WaferWeights& weights_;
  WaferProgram program_;
  std::int64_t num_tokens_;
  Partition hidden_, intermediate_;
  HeadPartition heads_;
  std::vector<HeadPartition::Piece> pieces_;
  TimedMesh mesh_;
  Tile x_;  // the residual
  int kept_layers_ = 0;
  std::optional<KvSpill> spill_;
};

}  // namespace

void check_prefill_mesh(WaferMesh cores) {
  const Grid grid = Grid::square(cores, LineOrder::interleaved);
  if (grid.columns > kMaxPrefillSide)
    throw_error<InputError>(
        "a mesh of {} x {} cores: prefill takes the least common multiple of its sides, {} places a side, and at most "
        "{} "
        "are simulated; take a mesh whose sides have more in common",
        cores.width, cores.height, grid.columns, kMaxPrefillSide);
}

WaferPrompt wafer_prefill(const WaferWeights& weights, WaferMesh cores, std::span<const std::int32_t> tokens,
                          const WaferProgram& program, ThreadPool& pool) {
  require(!tokens.empty(), "a prompt without tokens");
  check_prefill_mesh(cores);
  const Grid grid = Grid::square(cores, LineOrder::interleaved);
  return Prefill(weights, grid, tokens, program, pool).run();
}

}  // namespace heddle
