#include "wafer/programs/decode_region.h"

#include <algorithm>

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
      mesh_(program.device, mesh::Grid::of_cores(cores), pool),
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

// A token's row of the embedding is in one column of cores, which sends it to all columns.
void WaferDecodeRegion::embed(std::int32_t token) {
  receive(weight_row(weights_.embedding, token));
  if (const auto& device = mesh_.device())
    mesh_.add_cycles("embedding", hidden_.tile * kValueBytes / device->link_bytes_per_cycle.value +
                                      mesh_.grid().columns * device->alpha_cycles.value + device->beta_cycles.value +
                                      device->ramp_cycles.value);
}

void WaferDecodeRegion::receive(const std::vector<float>& hidden) {
  load_vector(mesh_, x_, hidden.data(), hidden_, Axis::y);
}

std::vector<float> WaferDecodeRegion::hidden() {
  mesh_.settle();
  std::vector<float> result(static_cast<std::size_t>(weights_.shape.hidden));
  for (std::size_t place = 0; place < hidden_.source.size(); ++place)
    if (const int source = hidden_.source[place]; source != Partition::kPadding)
      result[static_cast<std::size_t>(source)] =
          *mesh_.at(x_, static_cast<int>(place) / hidden_.tile, 0, static_cast<int>(place) % hidden_.tile);
  return result;
}

void WaferDecodeRegion::run_layers() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const WaferLayer& weights = weights_.layers[static_cast<std::size_t>(range_.first) + i];
    attention_block(layers_[i], weights);
    feed_forward_block(layers_[i], weights);
    if (const auto& device = mesh_.device()) mesh_.add_cycles("other serial work", device->decode_serial_cycles.value);
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
  mesh_.release(normed);
  mesh_.release(y);
  return result;
}

// The oldest tokens of the cache move up one row: keys and values of all layers, over one hop.
void WaferDecodeRegion::append(std::span<const int> passing) {
  for (Layer& layer : layers_) layer.kv.shift(passing, rows_);
  hold_cache();
  const auto& device = mesh_.device();
  if (!device || passing.empty()) return;
  const double values = 2.0 * heads_.keys.tile * static_cast<double>(layers_.size());
  mesh_.add_cycles("KV shift", values * kValueBytes / device->link_bytes_per_cycle.value + device->alpha_cycles.value +
                                   device->beta_cycles.value + device->ramp_cycles.value);
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

void WaferDecodeRegion::take(const WaferPrompt& prompt) {
  require(std::ssize(prompt.keys) == weights_.shape.num_layers, "a prompt of {} layers", prompt.keys.size());
  hold_cache();
  const auto width =
      static_cast<std::size_t>(weights_.shape.num_kv_heads) * static_cast<std::size_t>(weights_.shape.head_dim);
  const auto tile = static_cast<std::size_t>(heads_.keys.tile);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    WaferKvCache& kv = layers_[layer].kv;
    const auto in_model = static_cast<std::size_t>(range_.first) + layer;
    for (int row = 0; row < rows_.rows(); ++row)
      for (std::int64_t token = rows_.first(row); token < rows_.first(row + 1); ++token)
        for (std::size_t place = 0; place < heads_.keys.source.size(); ++place) {
          const int source = heads_.keys.source[place];
          if (source == Partition::kPadding) continue;
          const std::size_t from = static_cast<std::size_t>(token) * width + static_cast<std::size_t>(source);
          const auto to =
              static_cast<std::int64_t>(place % tile) * kv.pitch() + static_cast<std::int64_t>(place / tile);
          kv.key(row, token)[to] = prompt.keys[in_model][from];
          kv.value(row, token)[to] = prompt.values[in_model][from];
        }
  }
}

}  // namespace heddle
