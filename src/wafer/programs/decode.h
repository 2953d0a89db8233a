// Decode on a wafer (WaferLLM, section 4.2, figure 4): one token at a time.
//
// The hidden state is E_y^x: its features are cut along y, and every column of cores has them all. Each product turns
// the axis: E_y W_q -> H_x^y, whose heads are cut along x, H_x W_o -> E_y^x; E_y W_gate -> F_x^y, F_x W_down -> E_y^x.
// Weights are placed so beforehand, and nothing is ever transposed. A sum along the axis that a product turns away from
// ends in all its cores (K-tree), so the next product finds its operand where it needs it. The embedding lies as the
// logits' weights do, so that a token's row stands in one column of cores, which sends it along x.
//
// Keys and values of a token lie in one row of cores (kv_rows.h), cut along x as the queries are. Scores are summed
// along x, and the softmax's maximum and sum, and what is attended to, along y.
//
// Layers that exceed the memory of one mesh are shared by several, its regions (wafer/cost/wafer_regions.h): the hidden
// state is handed from the last core of one to the first of the next, and all have the same rows of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "wafer/programs/decode_region.h"

namespace heddle {

struct WaferDecodeOptions {
  KvMethod kv_method = KvMethod::shift;
  KvRowsLimits kv_limits = {};
  WaferProgram program = {};
};

// Memory of this machine that a WaferDecode takes, about, and beside it a layer of wafer_prefill.
double wafer_decode_bytes(const WaferModel& model, WaferMesh cores);

class WaferDecode {
 public:
  // Places all weights, one core a place; `weights` and `pool` must outlive it. Throws Failure when memory is short,
  // and InputError with core, phase, need and budget when a core's is.
  WaferDecode(const WaferWeights& weights, WaferMesh cores, const WaferDecodeOptions& options, ThreadPool& pool);

  // The transition from prefill: what it computed is spread over the rows. Returns the logits after the prompt's last
  // token. Throws InputError where the cache does not hold the prompt; InvalidArgument unless the cache is empty.
  std::vector<float> take(const WaferPrompt& prompt);

  // Forgets all tokens.
  void clear() { rows_ = KvRows(rows_.rows(), options_.kv_method, options_.kv_limits); }

  // Appends a token and returns the logits [vocab] of the next one. Throws InputError where the cache is full.
  std::vector<float> decode(std::int32_t token);

  const KvRows& rows() const { return rows_; }

  // Of the last decode(), or of what take() computed: cycles of the operations that were carried out, all regions' and
  // the hand-over between them; memory and routes of the fullest core so far.
  const WaferCost& cost() const { return cost_; }
  // Of all cores' time in the last decode(), the part in which a region waited for another; 0 with one region.
  double idle_share() const { return idle_share_; }

 private:
  void collect_costs(double handed_over);

  WaferDecodeOptions options_;
  WaferMesh cores_;
  KvRows rows_;
  std::vector<std::unique_ptr<WaferDecodeRegion>> regions_;
  WaferCost cost_;
  double idle_share_ = 0;
};

}  // namespace heddle
