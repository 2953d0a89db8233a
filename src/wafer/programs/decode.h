// Decode on a wafer (WaferLLM, section 4.2, figure 4): one token at a time.
//
// The hidden state is E_y^x: its features are split along y, and every column of cores has them all. Each GEMV turns
// the axis: E_y W_q -> H_x^y, whose heads are split along x, H_x W_o -> E_y^x; E_y W_gate -> F_x^y, F_x W_down ->
// E_y^x. Weights are placed for this beforehand, so nothing is ever transposed. The K-tree leaves a GEMV's sum in all
// cores of its axis, where the next GEMV needs it. The embedding is placed like the output weights: a token's row is in
// one column of cores, which sends it along x.
//
// Keys and values of a token lie in one row of cores (kv_rows.h), split along x like the queries. Scores are summed
// along x. The maximum and sum of the softmax, and the attention output, are reduced along y.
//
// Layers that exceed the memory of one mesh are split over several, its regions (wafer/cost/wafer_regions.h). The last
// core of a region hands the hidden state to the first of the next; all regions have the same rows of tokens.
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

// Estimate of the host memory of a WaferDecode and, in addition, of one layer of wafer_prefill.
double wafer_decode_bytes(const WaferModel& model, WaferMesh cores);

class WaferDecode {
 public:
  // Places all weights, one place per core. `weights` and `pool` must outlive it. Throws Failure when host memory is
  // short, and InputError with core, phase, need and budget when a core's memory is.
  WaferDecode(const WaferWeights& weights, WaferMesh cores, const WaferDecodeOptions& options, ThreadPool& pool);

  // The transition from prefill: spreads the prompt's keys and values over the rows. Returns the logits after the
  // prompt's last token. Throws InputError where the cache does not hold the prompt; InvalidArgument unless the cache
  // is empty.
  std::vector<float> take(const WaferPrompt& prompt);

  // Forgets all tokens.
  void clear() { rows_ = KvRows(rows_.rows(), options_.kv_method, options_.kv_limits); }

  // Appends a token and returns the logits [vocab] of the next one. Throws InputError where the cache is full.
  std::vector<float> decode(std::int32_t token);

  const KvRows& rows() const { return rows_; }
  // The token that the cores chose after the last decode() or take() (WaferDecodeRegion::logits).
  std::int32_t chosen() const { return regions_.back()->chosen(); }

  // Of the last decode() or take(): cycles of the executed operations in all regions; memory and
  // routes of the fullest core so far.
  const WaferCost& cost() const { return cost_; }
  // The fraction of all cores' time in the last decode() in which a region waited for another; 0 with one region.
  double idle_share() const { return idle_share_; }

 private:
  void collect_costs();

  const WaferWeights& weights_;
  WaferDecodeOptions options_;
  WaferMesh cores_;
  KvRows rows_;
  std::vector<std::unique_ptr<WaferDecodeRegion>> regions_;
  WaferCost cost_;
  double idle_share_ = 0;
};

}  // namespace heddle
