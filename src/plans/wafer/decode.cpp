#include "plans/wafer/decode.h"

#include <algorithm>

#include "base/error.h"
#include "fabric/mesh/gemv.h"
#include "plans/wafer/placement.h"

namespace heddle {

using mesh::Axis;
using mesh::Buffers;
using mesh::Tile;

double wafer_decode_bytes(const WaferModel& model, WaferMesh cores) {
  const double places = static_cast<double>(cores.height) * static_cast<double>(mesh::value_pitch(cores.width));
  const HeadPartition heads = head_partition(model.num_heads, model.num_kv_heads, model.head_dim, cores.width);
  const auto tile = [](int size, int line) { return static_cast<double>(mesh::tile_side(size, line)); };
  const double hidden = tile(model.hidden, cores.height), attention = 2.0 * heads.queries.tile + 2.0 * heads.keys.tile;
  const double feed_forward = 3 * tile(model.intermediate, cores.width);
  const double layer = hidden * (attention + feed_forward), output = hidden * tile(model.vocab, cores.width);
  return sizeof(float) * places * (model.num_layers * layer + layer + output);
}

WaferDecode::WaferDecode(const WaferWeights& weights, WaferMesh cores, const WaferDecodeOptions& options,
                         ThreadPool& pool)
    : weights_(weights),
      options_(options),
      hidden_(even_partition(weights.shape.hidden, cores.height)),
      vocab_(even_partition(weights.shape.vocab, cores.width)),
      heads_(head_partition(weights.shape.num_heads, weights.shape.num_kv_heads, weights.shape.head_dim, cores.width)),
      pieces_(heads_.pieces()),
      mesh_(mesh::Grid::of_cores(cores), pool),
      rows_(cores.height, options.kv_method, options.kv_limits) {
  x_ = mesh_.allocate("hidden state", 1, hidden_.tile, Buffers::two);
  for (const WaferLayer& layer : weights.layers) place(layer);
  final_norm_ = place_vector(mesh_, static_cast<const float*>(weights.final_norm.weight), hidden_, Axis::y);
  output_ = place_weight(mesh_, weights.logits, {.in = hidden_, .out = vocab_});
}

// W_o and W_down lie turned, in comparison with prefill: their inputs along x.
void WaferDecode::place(const WaferLayer& w) {
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
Tile WaferDecode::product(Tile x, Tile weight, Tile bias, Axis axis) {
  const Tile y = mesh_.allocate("product", 1, weight.columns, Buffers::two);
  mesh_gemv(mesh_, mesh::GemvTiles{.x = x, .b = weight, .y = y}, axis, options_.work.all_reduce);
  if (bias.id >= 0) add(mesh_, options_.work, y, bias);
  return y;
}

std::vector<float> WaferDecode::decode(std::int32_t token) {
  append_token();
  const std::vector<float> embedded = weight_row(weights_.embedding, token);
  load_vector(mesh_, x_, embedded.data(), hidden_, Axis::y);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    attention_block(layers_[i], weights_.layers[i]);
    feed_forward_block(layers_[i], weights_.layers[i]);
  }
  return logits();
}

void WaferDecode::attention_block(Layer& layer, const WaferLayer& weights) {
  const CoreWork& work = options_.work;
  const Tile normed = mesh_.allocate("normed", 1, x_.columns, Buffers::one);
  rms_norm(mesh_, work, x_, layer.attention_norm, normed, Axis::y, weights_.shape.hidden, weights.attention_norm.eps);
  const Tile q = product(normed, layer.wq, layer.bq, Axis::y);
  const Tile k = product(normed, layer.wk, layer.bk, Axis::y);
  const Tile v = product(normed, layer.wv, layer.bv, Axis::y);
  if (weights.query_norm.weight != nullptr) norm_queries_and_keys(q, k, layer, weights);
  const Positions here{.first = rows_.size() - 1, .per_row = 0};
  rotate(mesh_, work, q, heads_, weights_.inv_freq, weights_.rope_scale, here);
  rotate(mesh_, work, k, heads_, weights_.inv_freq, weights_.rope_scale, here);
  store(layer.kv, k, v);
  const Tile attended = attend(q, layer.kv, weights.window);
  const Tile delta = product(attended, layer.wo, layer.bo, Axis::x);
  add(mesh_, work, x_, delta);
  for (const Tile tile : {normed, q, k, v, attended, delta}) mesh_.release(tile);
}

void WaferDecode::norm_queries_and_keys(Tile q, Tile k, const Layer& layer, const WaferLayer& weights) {
  const WaferModel& shape = weights_.shape;
  norm_heads(mesh_, options_.work, q, layer.query_norm, heads_.query_columns(), shape.num_heads, shape.head_dim,
             weights.query_norm.eps);
  norm_heads(mesh_, options_.work, k, layer.key_norm, heads_.key_columns(), shape.num_kv_heads, shape.head_dim,
             weights.key_norm.eps);
}

void WaferDecode::feed_forward_block(Layer& layer, const WaferLayer& weights) {
  const CoreWork& work = options_.work;
  const Tile normed = mesh_.allocate("normed", 1, x_.columns, Buffers::one);
  rms_norm(mesh_, work, x_, layer.feed_forward_norm, normed, Axis::y, weights_.shape.hidden,
           weights.feed_forward_norm.eps);
  const Tile gate = product(normed, layer.gate, layer.bgate, Axis::y);
  const Tile up = product(normed, layer.up, layer.bup, Axis::y);
  swiglu(mesh_, work, gate, up, gate);
  const Tile delta = product(gate, layer.down, layer.bdown, Axis::x);
  add(mesh_, work, x_, delta);
  for (const Tile tile : {normed, gate, up, delta}) mesh_.release(tile);
}

std::vector<float> WaferDecode::logits() {
  const Tile normed = mesh_.allocate("normed", 1, x_.columns, Buffers::one);
  rms_norm(mesh_, options_.work, x_, final_norm_, normed, Axis::y, weights_.shape.hidden, weights_.final_norm.eps);
  const Tile y = product(normed, output_, Tile{}, Axis::y);
  std::vector<float> result(static_cast<std::size_t>(weights_.shape.vocab));
  for (std::size_t token = 0; token < result.size(); ++token)
    result[token] = mesh_.at(y, 0, 0, static_cast<int>(token) % y.columns)[token / static_cast<std::size_t>(y.columns)];
  mesh_.release(normed);
  mesh_.release(y);
  return result;
}

// A token comes to the last row; the caches' oldest tokens move up.
void WaferDecode::append_token() {
  reserve(rows_.fullest() + 1);
  const auto passing = rows_.append();
  for (Layer& layer : layers_) layer.kv.shift(passing, rows_);
}

void WaferDecode::reserve(std::int64_t slots) {
  for (Layer& layer : layers_)
    if (slots > layer.kv.slots()) layer.kv.reserve(rows_.rows(), slots + slots / 4, rows_);
}

void WaferDecode::store(WaferKvCache& kv, Tile k, Tile v) {
  const int row = rows_.rows() - 1;
  const std::int64_t token = rows_.size() - 1;
  mesh_.settle();
  for (int e = 0; e < k.columns; ++e) {
    std::copy_n(mesh_.at(k, row, 0, e), mesh_.grid().columns, kv.key(row, token) + e * kv.pitch());
    std::copy_n(mesh_.at(v, row, 0, e), mesh_.grid().columns, kv.value(row, token) + e * kv.pitch());
  }
}

std::vector<float> WaferDecode::take(const WaferPrompt& prompt) {
  require(rows_.size() == 0 && prompt.keys.size() == layers_.size() && prompt.values.size() == layers_.size(),
          "a wafer's decode takes a prompt once, of {} layers", layers_.size());
  rows_.fill(prompt.num_tokens);
  reserve(rows_.fullest());
  const auto width =
      static_cast<std::size_t>(weights_.shape.num_kv_heads) * static_cast<std::size_t>(weights_.shape.head_dim);
  const auto tile = static_cast<std::size_t>(heads_.keys.tile);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    WaferKvCache& kv = layers_[layer].kv;
    for (int row = 0; row < rows_.rows(); ++row)
      for (std::int64_t token = rows_.first(row); token < rows_.first(row + 1); ++token)
        for (std::size_t place = 0; place < heads_.keys.source.size(); ++place) {
          const int source = heads_.keys.source[place];
          if (source == Partition::kPadding) continue;
          const std::size_t from = static_cast<std::size_t>(token) * width + static_cast<std::size_t>(source);
          const auto to =
              static_cast<std::int64_t>(place % tile) * kv.pitch() + static_cast<std::int64_t>(place / tile);
          kv.key(row, token)[to] = prompt.keys[layer][from];
          kv.value(row, token)[to] = prompt.values[layer][from];
        }
  }
  load_vector(mesh_, x_, prompt.hidden.data(), hidden_, Axis::y);
  return logits();
}

}  // namespace heddle
