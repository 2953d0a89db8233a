#include "wafer/programs/decode_region.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "wafer/mesh/gemv.h"
#include "wafer/programs/placement.h"

namespace heddle {

using mesh::Axis;
using mesh::Buffers;
using mesh::Tile;

WaferDecodeRegion::WaferDecodeRegion(const WaferWeights& weights, WaferMesh cores, LayerRange layers,
                                     const WaferProgram& program, const KvRows& rows, ThreadPool& pool)
    : weights_(weights),
      range_(layers),
      all_reduce_(program.all_reduce),
      hidden_(even_partition(weights.shape.hidden, cores.height)),
      vocab_(even_partition(weights.shape.vocab, cores.width)),
      heads_(head_partition(weights.shape.num_heads, weights.shape.num_kv_heads, weights.shape.head_dim, cores.width)),
      pieces_(heads_.pieces()),
      mesh_(program.device, mesh::Grid::of_cores(cores), pool, program.all_reduce.sync),
      rows_(rows) {
  const bool has_logits = layers.last == weights.shape.num_layers;
  mesh_.phase("weights of decode");
  x_ = mesh_.allocate("hidden state", 1, hidden_.tile, Buffers::two);
  for (int layer = layers.first; layer < layers.last; ++layer) place(weights.layers[static_cast<std::size_t>(layer)]);
  if (has_logits) {
    final_norm_ = place_vector(mesh_, static_cast<const float*>(weights.final_norm.weight), hidden_, Axis::y);
    output_ = place_weight(mesh_, weights.logits, {.in = hidden_, .out = vocab_});
  }
  const bool shares_table = has_logits && weights.embedding.row(0) == weights.logits.row(0);
  if (layers.first == 0 && !shares_table) mesh_.hold("embedding", kValueBytes * hidden_.tile * vocab_.tile);
}

// W_o and W_down lie transposed, compared with prefill: their inputs along x.
void WaferDecodeRegion::place(const WaferLayer& w) {
  const WaferModel& shape = weights_.shape;
  const Partition intermediate = even_partition(shape.intermediate, mesh_.grid().columns);
  const std::int64_t first_k = std::int64_t{shape.num_heads} * shape.head_dim;
  const std::int64_t first_v = first_k + std::int64_t{shape.num_kv_heads} * shape.head_dim;
  const auto norm = [&](const Norm& n) {
    return place_vector(mesh_, static_cast<const float*>(n.weight), hidden_, Axis::y);
  };
  const auto from_hidden = [&](const Weight& weight, const Partition& out, std::int64_t first_row = 0) {
    return place_weight(mesh_, weight, {.in = hidden_, .out = out, .first_row = first_row});
  };
  const auto to_hidden = [&](const Weight& weight, const Partition& in) {
    return place_weight(mesh_, weight, {.in = in, .out = hidden_, .in_axis = Axis::x});
  };
  const auto bias = [&](const Weight& weight, const Partition& out, Axis axis, std::int64_t first = 0) {
    return weight.bias == nullptr ? Tile{} : place_vector(mesh_, weight.bias + first, out, axis);
  };
  const auto head_norm = [&](const Norm& n, const Partition& partition) {
    return n.weight == nullptr ? Tile{}
                               : place_vector(mesh_, static_cast<const float*>(n.weight),
                                              within_head(partition, shape.head_dim), Axis::x);
  };
  layers_.push_back({.attention_norm = norm(w.attention_norm),
                     .wq = from_hidden(w.qkv, heads_.queries),
                     .wk = from_hidden(w.qkv, heads_.keys, first_k),
                     .wv = from_hidden(w.qkv, heads_.keys, first_v),
                     .wo = to_hidden(w.output, heads_.queries),
                     .feed_forward_norm = norm(w.feed_forward_norm),
                     .gate = from_hidden(w.gate_up, intermediate),
                     .up = from_hidden(w.gate_up, intermediate, shape.intermediate),
                     .down = to_hidden(w.down, intermediate),
                     .bq = bias(w.qkv, heads_.queries, Axis::x),
                     .bk = bias(w.qkv, heads_.keys, Axis::x, first_k),
                     .bv = bias(w.qkv, heads_.keys, Axis::x, first_v),
                     .bo = bias(w.output, hidden_, Axis::y),
                     .bgate = bias(w.gate_up, intermediate, Axis::x),
                     .bup = bias(w.gate_up, intermediate, Axis::x, shape.intermediate),
                     .bdown = bias(w.down, hidden_, Axis::y),
                     .query_norm = head_norm(w.query_norm, heads_.queries),
                     .key_norm = head_norm(w.key_norm, heads_.keys),
                     .kv = WaferKvCache(mesh_.grid().columns, heads_.keys.tile)});
}

// A GEMV along `axis`, into a new tile.
Tile WaferDecodeRegion::product(Tile x, Tile weight, Tile bias, Axis axis) {
  const Tile y = mesh_.allocate("product", 1, weight.columns, Buffers::two);
  mesh_gemv(mesh_, mesh::GemvTiles{.x = x, .b = weight, .y = y}, axis, all_reduce_);
  if (bias.id >= 0) add(mesh_, y, bias);
  return y;
}

// A token's row of the embedding is in one column of cores.
void WaferDecodeRegion::embed(std::int32_t token) {
  mesh_.account("embedding");
  load_vector(mesh_, x_, weight_row(weights_.embedding, token).data(), hidden_, Axis::y);
  keep_column(token / vocab_.tile);
  send_along_rows();
  mesh_.account("");
}

// What enters the mesh takes the routes between neighbours.
void WaferDecodeRegion::receive(WaferDecodeRegion& before, const HandOver& way) {
  for (const Axis axis : {Axis::x, Axis::y}) mesh_.take_neighbours(axis, all_reduce_);
  before.mesh_.settle();
  mesh_.settle();
  mesh_.clear(x_);
  std::vector<mesh::RelayMessage> messages;
  messages.reserve(static_cast<std::size_t>(mesh_.grid().rows));
  for (int row = 0; row < mesh_.grid().rows; ++row)
    messages.push_back(way.message(way.column_from(row), row, way.column_to(row), row, x_.columns));
  mesh_.relay("way to the next region", messages, [&](std::size_t n) {
    const auto row = static_cast<int>(n);
    for (int c = 0; c < x_.columns; ++c)
      mesh_.at(x_, row, 0, c)[way.column_to(row)] = before.mesh_.at(before.x_, row, 0, c)[way.column_from(row)];
  });
  mesh_.account("hand-over");
  send_along_rows();
  mesh_.account("");
}

void WaferDecodeRegion::keep_column(int column) {
  for (int i = 0; i < mesh_.grid().rows; ++i)
    for (int c = 0; c < x_.columns; ++c) {
      float* row = mesh_.at(x_, i, 0, c);
      for (int j = 0; j < mesh_.grid().columns; ++j)
        if (j != column) row[j] = 0;
    }
}

// A sum along x, to which the other columns add zeros, gives it to all: it takes the routes that sums have.
void WaferDecodeRegion::send_along_rows() {
  mesh_.all_reduce(x_, Axis::x, mesh::Reduction::sum, all_reduce_);
}

void WaferDecodeRegion::run_layers() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const WaferLayer& weights = weights_.layers[static_cast<std::size_t>(range_.first) + i];
    attention_block(layers_[i], weights);
    feed_forward_block(layers_[i], weights);
    if (const auto& device = mesh_.device())
      mesh_.add_cycles(kFittedResidual, device->decode_serial_cycles.value, Basis::fitted);
  }
}

void WaferDecodeRegion::attention_block(Layer& layer, const WaferLayer& weights) {
  mesh_.phase("attention of decode");
  const Tile normed = mesh_.allocate("normed", 1, x_.columns, Buffers::one);
  rms_norm(mesh_, all_reduce_, x_, layer.attention_norm, normed, Axis::y, weights_.shape.hidden,
           weights.attention_norm.eps);
  const Tile q = product(normed, layer.wq, layer.bq, Axis::y);
  const Tile k = product(normed, layer.wk, layer.bk, Axis::y);
  const Tile v = product(normed, layer.wv, layer.bv, Axis::y);
  if (weights.query_norm.weight != nullptr) norm_queries_and_keys(q, k, layer, weights);
  const Positions here{.first = rows_.size() - 1, .per_row = 0};
  rotate(mesh_, q, heads_, weights_.inv_freq, weights_.rope_scale, here);
  rotate(mesh_, k, heads_, weights_.inv_freq, weights_.rope_scale, here);
  store(layer.kv, k, v);
  const Tile attended = attend(q, layer.kv, weights.window);
  const Tile delta = product(attended, layer.wo, layer.bo, Axis::x);
  add(mesh_, x_, delta);
  for (const Tile tile : {normed, q, k, v, attended, delta}) mesh_.release(tile);
}

void WaferDecodeRegion::norm_queries_and_keys(Tile q, Tile k, const Layer& layer, const WaferLayer& weights) {
  const WaferModel& shape = weights_.shape;
  norm_heads(mesh_, all_reduce_, q, layer.query_norm, heads_.query_columns(), shape.num_heads, shape.head_dim,
             weights.query_norm.eps);
  norm_heads(mesh_, all_reduce_, k, layer.key_norm, heads_.key_columns(), shape.num_kv_heads, shape.head_dim,
             weights.key_norm.eps);
}

void WaferDecodeRegion::feed_forward_block(Layer& layer, const WaferLayer& weights) {
  mesh_.phase("feed-forward of decode");
  const Tile normed = mesh_.allocate("normed", 1, x_.columns, Buffers::one);
  rms_norm(mesh_, all_reduce_, x_, layer.feed_forward_norm, normed, Axis::y, weights_.shape.hidden,
           weights.feed_forward_norm.eps);
  const Tile gate = product(normed, layer.gate, layer.bgate, Axis::y);
  const Tile up = product(normed, layer.up, layer.bup, Axis::y);
  swiglu(mesh_, gate, up, gate);
  const Tile delta = product(gate, layer.down, layer.bdown, Axis::x);
  add(mesh_, x_, delta);
  for (const Tile tile : {normed, gate, up, delta}) mesh_.release(tile);
}

std::vector<float> WaferDecodeRegion::logits() {
  const Tile normed = mesh_.allocate("normed", 1, x_.columns, Buffers::one);
  rms_norm(mesh_, all_reduce_, x_, final_norm_, normed, Axis::y, weights_.shape.hidden, weights_.final_norm.eps);
  const Tile y = product(normed, output_, Tile{}, Axis::y);
  std::vector<float> result(static_cast<std::size_t>(weights_.shape.vocab));
  for (std::size_t token = 0; token < result.size(); ++token)
    result[token] = mesh_.at(y, 0, 0, static_cast<int>(token) % y.columns)[token / static_cast<std::size_t>(y.columns)];
  choose(y);
  mesh_.release(normed);
  mesh_.release(y);
  return result;
}

// Each core's likeliest token, then the line's: the highest logit, and the lowest of the tokens that have it, negated.
void WaferDecodeRegion::choose(Tile y) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const Tile highest = mesh_.allocate("highest logit", 1, 1, Buffers::two);
  const Tile choice = mesh_.allocate("its token", 1, 2, Buffers::two);  // a number of 32 bits, as two of 16
  mesh_.account("token choice");
  // The tokens of column j, by place: y's padding is no token.
  const auto for_tokens = [&](int j, auto action) {
    for (int c = 0; c < y.columns; ++c)
      if (const int token = j * y.columns + c; token < weights_.shape.vocab) action(token, c);
  };
  mesh_.apply({.values = 1.0 * y.columns}, [&](mesh::ValueMesh& values, int i) {
    for (int j = 0; j < mesh_.grid().columns; ++j) {
      float& high = values.at(highest, i, 0, 0)[j];
      high = kNone;
      for_tokens(j, [&](int, int c) { high = std::max(high, values.at(y, i, 0, c)[j]); });
    }
  });
  mesh_.all_reduce(highest, Axis::x, mesh::Reduction::maximum, all_reduce_);
  mesh_.apply({.values = 1.0 * y.columns}, [&](mesh::ValueMesh& values, int i) {
    for (int j = 0; j < mesh_.grid().columns; ++j) {
      float& best = values.at(choice, i, 0, 0)[j];
      best = kNone;
      for_tokens(j, [&](int token, int c) {
        if (values.at(y, i, 0, c)[j] == values.at(highest, i, 0, 0)[j])
          best = std::max(best, -static_cast<float>(token));
      });
    }
  });
  mesh_.all_reduce(choice, Axis::x, mesh::Reduction::maximum, all_reduce_);
  mesh_.settle();
  const float negated = *mesh_.at(choice, 0, 0, 0);
  const bool is_number = std::isfinite(*mesh_.at(highest, 0, 0, 0)) && std::isfinite(negated);
  chosen_ = is_number ? static_cast<std::int32_t>(-negated) : -1;
  mesh_.account("");
  mesh_.release(highest);
  mesh_.release(choice);
}

void WaferDecodeRegion::append(std::span<const int> passing) {
  hold_cache();
  if (!passing.empty()) shift(passing);
}

// The oldest tokens of the cache move up one row: keys and values of all layers in one message, from slot to slot. It
// takes the routes between neighbours, which the sums along y have: none beside the 21 of decode.
void WaferDecodeRegion::shift(std::span<const int> passing) {
  const int tile = heads_.keys.tile, all = 2 * tile * static_cast<int>(layers_.size());
  const Tile from = mesh_.allocate_held(1, all), into = mesh_.allocate_held(1, all);
  // action(values of a slot of all columns, column of the tile) for the token that `row` passed up; `at`: where it is.
  const auto for_slots = [&](int row, int at, auto action) {
    const std::int64_t token = rows_.first(row) - 1;
    int column = 0;
    for (Layer& layer : layers_)
      for (float* slot : {layer.kv.key(at, token), layer.kv.value(at, token)})
        for (int e = 0; e < tile; ++e) action(slot + e * layer.kv.pitch(), column++);
  };
  const int width = mesh_.grid().columns;
  std::vector<mesh::RowMove> moves;
  for (const int row : passing) {
    moves.push_back({.from_place = row, .to_place = row - 1});
    for_slots(row, row, [&](const float* slot, int c) { std::copy_n(slot, width, mesh_.at(from, row, 0, c)); });
  }
  mesh_.account("KV shift");
  mesh_.pass_to_neighbours(from, into, Axis::y, moves, all_reduce_);
  mesh_.account("");
  for (const int row : passing)
    for_slots(row, row - 1, [&](float* slot, int c) { std::copy_n(mesh_.at(into, row - 1, 0, c), width, slot); });
  mesh_.release(from);
  mesh_.release(into);
}

// Counts the cache of the fullest row.
void WaferDecodeRegion::hold_cache() {
  mesh_.phase("KV cache");
  mesh_.hold("keys and values", kValueBytes * 2 * heads_.keys.tile * static_cast<double>(layers_.size()) *
                                    static_cast<double>(rows_.fullest()));
}

void WaferDecodeRegion::reserve(std::int64_t slots) {
  for (Layer& layer : layers_)
    if (slots > layer.kv.slots()) layer.kv.reserve(rows_.rows(), slots + slots / 4, rows_);
}

void WaferDecodeRegion::store(WaferKvCache& kv, Tile k, Tile v) {
  mesh_.apply({.values = 2.0 * k.columns}, [](auto&&...) {});
  const int row = rows_.rows() - 1;
  const std::int64_t token = rows_.size() - 1;
  mesh_.settle();
  for (int e = 0; e < k.columns; ++e) {
    std::copy_n(mesh_.at(k, row, 0, e), mesh_.grid().columns, kv.key(row, token) + e * kv.pitch());
    std::copy_n(mesh_.at(v, row, 0, e), mesh_.grid().columns, kv.value(row, token) + e * kv.pitch());
  }
}

void WaferDecodeRegion::take(const WaferPrompt& prompt, const LayerMoves& moves) {
  require(std::ssize(prompt.keys) == weights_.shape.num_layers, "a prompt of {} layers", prompt.keys.size());
  hold_cache();
  const std::int64_t tile =
      std::ssize(prompt.keys.front()) / (prompt.num_tokens * prompt.places);  // of keys in prefill
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    WaferKvCache& kv = layers_[layer].kv;
    const auto in_model = static_cast<std::size_t>(range_.first) + layer;
    take_weights(prompt, moves, layers_[layer], weights_.layers[in_model]);
    for (const IndexMove& tokens : moves.tokens.moves)
      for (const std::int64_t token : tokens.indices)
        for (const IndexMove& features : moves.keys.moves)
          for (const int feature : features.indices) {
            const auto f = static_cast<std::size_t>(feature);
            const auto source =
                static_cast<std::size_t>((token * tile + moves.keys.before[f]) * prompt.places + features.from);
            const std::int64_t target = moves.keys.after[f] * kv.pitch() + features.to;
            kv.key(tokens.to, token)[target] = prompt.keys[in_model][source];
            kv.value(tokens.to, token)[target] = prompt.values[in_model][source];
          }
  }
}

// Places each weight as prefill has it, aligned for its GEMMs, and takes it from there, block by block.
void WaferDecodeRegion::take_weights(const WaferPrompt& prompt, const LayerMoves& moves, const Layer& layer,
                                     const WaferLayer& weights) {
  const WaferModel& shape = weights_.shape;
  const int places = prompt.places;
  const HeadPartition heads = head_partition(shape.num_heads, shape.num_kv_heads, shape.head_dim, places);
  const Partition hidden = even_partition(shape.hidden, places), inner = even_partition(shape.intermediate, places);
  const std::int64_t first_k = std::int64_t{shape.num_heads} * shape.head_dim;
  const std::int64_t first_v = first_k + std::int64_t{shape.num_kv_heads} * shape.head_dim;
  struct Taken {
    const Weight& weight;
    WeightPlacement placement;
    Tile tile;
  };
  const Taken all[] = {{weights.qkv, {.in = hidden, .out = heads.queries}, layer.wq},
                       {weights.qkv, {.in = hidden, .out = heads.keys, .first_row = first_k}, layer.wk},
                       {weights.qkv, {.in = hidden, .out = heads.keys, .first_row = first_v}, layer.wv},
                       {weights.output, {.in = heads.queries, .out = hidden}, layer.wo},
                       {weights.gate_up, {.in = hidden, .out = inner}, layer.gate},
                       {weights.gate_up, {.in = hidden, .out = inner, .first_row = shape.intermediate}, layer.up},
                       {weights.down, {.in = inner, .out = hidden}, layer.down}};
  mesh::TimedMesh before(std::nullopt, mesh::Grid::square(prompt.cores, mesh::LineOrder::interleaved), mesh_.pool());
  const auto weight_moves = moves.weights();
  for (std::size_t w = 0; w < std::size(all); ++w) {
    const AxisMoves &rows = weight_moves[w].rows, &columns = weight_moves[w].columns;
    const Tile from = place_weight(before, all[w].weight, all[w].placement), to = all[w].tile;
    before.place_skewed(from, Axis::y);
    mesh_.clear(to);
    mesh_.settle();
    const bool turned = weight_moves[w].lies == Lies::aligned_and_turned;
    mesh_.pool().parallel_for(std::ssize(rows.moves), 1, [&](std::int64_t begin, std::int64_t end) {
      for (const IndexMove& row :
           std::span(rows.moves).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)))
        for (const IndexMove& column : columns.moves) {
          const int y = WeightMoves::place_y(row, column, places);
          for (const int r : row.indices)
            for (const int c : column.indices) {
              const auto ri = static_cast<std::size_t>(r), ci = static_cast<std::size_t>(c);
              float* target = mesh_.at(to, turned ? column.to : row.to, rows.after[ri], columns.after[ci]);
              target[turned ? row.to : column.to] =
                  before.at(from, y, rows.before[ri], columns.before[ci])[column.from];
            }
        }
    });
    before.release(from);
  }
}

void WaferDecodeRegion::take_hidden(const WaferPrompt& prompt, const LayerMoves& moves) {
  for (const Axis axis : {Axis::x, Axis::y}) mesh_.take_neighbours(axis, all_reduce_);
  mesh_.settle();
  mesh_.clear(x_);
  for (const IndexMove& features : moves.hidden.moves)
    for (const int feature : features.indices) {
      const auto f = static_cast<std::size_t>(feature);
      *mesh_.at(x_, features.to, 0, moves.hidden.after[f]) =
          prompt.hidden[static_cast<std::size_t>(moves.hidden.before[f] * prompt.places + features.from)];
    }
  mesh_.account("hand-over");
  send_along_rows();
  mesh_.account("");
}

}  // namespace heddle
