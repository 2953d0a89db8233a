// One region of decode (decode.h): some of the layers on a mesh of their own, with their KV caches.
#pragma once

#include <cstdint>
#include <vector>

#include "wafer/cost/wafer_regions.h"
#include "wafer/programs/core_work.h"
#include "wafer/programs/hand_over.h"
#include "wafer/programs/kv_cache.h"
#include "wafer/programs/relayout.h"
#include "wafer/programs/weights.h"

namespace heddle {

// The result of prefill.
struct WaferPrompt {
  std::int64_t num_tokens = 0;
  WaferMesh cores;                               // of prefill
  int places = 0;                                // along each of its axes
  std::vector<std::vector<float>> keys, values;  // [layers], each as it lies there: [tokens][columns of a tile][places]
  std::vector<float>
      hidden;      // the last token's residual after all layers, as it lies there: [columns of a tile][places]
  WaferCost cost;  // of the prefill; only with a device
  double idle_core_bytes = 0;  // of the fullest idle core that got keys and values
};

// How a program runs on a mesh of cores.
struct WaferProgram {
  AllReduceOptions all_reduce = {};
  std::optional<PlmrDevice> device =
      {};           // on which it is timed, and whose memory and routes it must keep; none: values alone
  int regions = 1;  // that split the layers
  // Of prefill: the idle cores that get each layer's keys and values; none: they stay where they were computed.
  std::optional<CoreRectangle> spill = {};
};

class WaferDecodeRegion {
 public:
  // The first region has the embedding, the last one the output weights. `weights`, `rows` and `pool` must outlive it.
  // Throws Failure when host memory is short, InputError when a core's memory is.
  WaferDecodeRegion(const WaferWeights& weights, WaferMesh cores, LayerRange layers, const WaferProgram& program,
                    const KvRows& rows, ThreadPool& pool);

  void embed(std::int32_t token);
  // The hidden state from the region before, by messages from core to core, and from the column that gets it to all.
  void receive(WaferDecodeRegion& before, const HandOver& way);

  // Moves weights, and the prompt's keys and values, of the region's layers here (relayout.h), which takes no time:
  // run_relayout() has that of all regions. Precondition: rows have been filled.
  void take(const WaferPrompt& prompt, const LayerMoves& moves);
  // The hidden state of the prompt's last token, into the first column, which sends it to all.
  void take_hidden(const WaferPrompt& prompt, const LayerMoves& moves);
  // Call reserve() first. Stores a token added to the last row, and moves a token up from each of the rows `passing`
  // (KvRows::append).
  void reserve(std::int64_t slots);
  void append(std::span<const int> passing);
  void run_layers();
  // Also chooses the likeliest token, on the cores: the lowest of those with the highest logit; -1 where that is not a
  // number.
  std::vector<float> logits();
  std::int32_t chosen() const { return chosen_; }

  // The cost since the last call.
  WaferCost take_cost() { return mesh_.take_cost(); }

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
  void store(WaferKvCache& kv, mesh::Tile k, mesh::Tile v);
  void hold_cache();
  void shift(std::span<const int> passing);
  void keep_column(int column);  // of the hidden state
  void send_along_rows();        // from the only core of each row in which the hidden state is not zero
  void take_weights(const WaferPrompt& prompt, const LayerMoves& moves, const Layer& layer, const WaferLayer& weights);
  void choose(mesh::Tile y);

  const WaferWeights& weights_;
  LayerRange range_;
  AllReduceOptions all_reduce_;
  Partition hidden_, vocab_;  // along y, along x
  HeadPartition heads_;       // along x
  std::vector<HeadPartition::Piece> pieces_;
  mesh::TimedMesh mesh_;
  std::vector<Layer> layers_;
  mesh::Tile x_, final_norm_, output_;  // x_: the residual
  const KvRows& rows_;
  std::int32_t chosen_ = -1;
};

}  // namespace heddle
