// Decode on a wafer (WaferLLM, section 4.2, figure 4): one token at a time.
//
// The hidden state is E_y^x: its features are cut along y, and every column of cores has them all. Each product turns
// the axis: E_y W_q -> H_x^y, whose heads are cut along x, H_x W_o -> E_y^x; E_y W_gate -> F_x^y, F_x W_down -> E_y^x.
// Weights are placed so beforehand, and nothing is ever transposed. A sum along the axis that a product turns away from
// ends in all its cores (K-tree), so the next product finds its operand where it needs it.
//
// Keys and values of a token lie in one row of cores (kv_rows.h), cut along x as the queries are. Scores are summed along
// x, and the softmax's maximum and sum, and what is attended to, along y.
#pragma once

#include <cstdint>
#include <vector>

#include "plans/wafer/core_work.h"
#include "plans/wafer/kv_cache.h"
#include "plans/wafer/weights.h"

namespace heddle {

// Keys and values of a prompt, as prefill hands them over: [tokens, num_kv_heads * head_dim], a pair of them a layer.
struct WaferPrompt {
  std::int64_t num_tokens = 0;
  std::vector<std::vector<float>> keys, values;  // [layers]
  std::vector<float> hidden;                     // the last token's residual after all layers [hidden]
};

struct WaferDecodeOptions {
  KvMethod kv_method = KvMethod::shift;
  KvRowsLimits kv_limits = {};
  CoreWork work = {};
};

// Memory of this machine that a WaferDecode takes, about, and beside it a layer of wafer_prefill.
double wafer_decode_bytes(const WaferModel& model, WaferMesh cores);

class WaferDecode {
 public:
  // Places all weights, one core a place; `weights` and `pool` must outlive it. Throws Failure when memory is short.
  WaferDecode(const WaferWeights& weights, WaferMesh cores, const WaferDecodeOptions& options, ThreadPool& pool);

  // The transition from prefill: what it computed is spread over the rows. Returns the logits after the prompt's last
  // token. Throws InputError where the cache does not hold the prompt; InvalidArgument unless the cache is empty.
  std::vector<float> take(const WaferPrompt& prompt);

  // Forgets all tokens.
  void clear() { rows_ = KvRows(rows_.rows(), options_.kv_method, options_.kv_limits); }

  // Appends a token and returns the logits [vocab] of the next one. Throws InputError where the cache is full.
  std::vector<float> decode(std::int32_t token);

  const KvRows& rows() const { return rows_; }

 private:
  struct Layer {
    mesh::Tile attention_norm, wq, wk, wv, wo, feed_forward_norm, gate, up, down;
    mesh::Tile bq, bk, bv, bo, bgate, bup, bdown;  // id < 0: none
    mesh::Tile query_norm, key_norm;               // likewise
    WaferKvCache kv;
  };

  void place(const WaferLayer& weights);
  mesh::Tile product(mesh::Tile x, mesh::Tile weight, mesh::Tile bias, mesh::Axis axis);
  void norm_queries_and_keys(mesh::Tile q, mesh::Tile k, const Layer& layer, const WaferLayer& weights);
  void attention_block(Layer& layer, const WaferLayer& weights);
  void feed_forward_block(Layer& layer, const WaferLayer& weights);
  mesh::Tile attend(mesh::Tile q, const WaferKvCache& kv, int window);
  void reserve(std::int64_t slots);
  void store(WaferKvCache& kv, mesh::Tile k, mesh::Tile v);
  void append_token();
  std::vector<float> logits();

  const WaferWeights& weights_;
  WaferDecodeOptions options_;
  Partition hidden_, vocab_;  // along y, along x
  HeadPartition heads_;       // along x
  std::vector<HeadPartition::Piece> pieces_;
  mesh::ValueMesh mesh_;
  std::vector<Layer> layers_;
  mesh::Tile x_, final_norm_, output_;  // x_: the residual
  KvRows rows_;
};

}  // namespace heddle
