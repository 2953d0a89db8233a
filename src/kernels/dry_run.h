// A dry run: a forward pass whose operators check their params, tell them to the run and enqueue nothing. It needs no
// weights, no memory (base/stand_in.h) and no GPU, and says what a step computes, in what order.
#pragma once

#include <variant>
#include <vector>

#include "base/lane.h"
#include "base/stream.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/copy_pages.h"
#include "kernels/attention/kv_append.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_append.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/rmsnorm.h"
#include "kernels/rows/swiglu.h"
#include "kernels/sampling/argmax.h"
#include "kernels/sampling/sample.h"
#include "kernels/sampling/take_tokens.h"

namespace heddle {

// The params of any operator. Addresses in them stand for memory that nobody has.
using OperatorCall = std::variant<ArgmaxParams, AttentionParams, AttentionPlanParams, CopyPagesParams, EmbeddingParams,
                                  GatherRowsParams, KvAppendParams, LinearParams, LinearSwigluParams, RmsNormParams,
                                  RopeAppendParams, RopeParams, SampleParams, SwigluParams, TakeTokensParams>;

class DryRun {
 public:
  // Of a forward pass on `device`, which need not be there.
  explicit DryRun(Device device) : stream_(Stream::refusing(device)) {}
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  Lane lane() { return {stream_, *this}; }

  void record(const OperatorCall& call) { calls_.push_back(call); }

  // In order, without calls that have nothing to do. An operator that consists of others is one call where it has a
  // kernel of its own (linear_swiglu), and rope_append always.
  const std::vector<OperatorCall>& calls() const { return calls_; }

 private:
  Stream stream_;
  std::vector<OperatorCall> calls_;
};

// Whether the lane is a dry run's, which then has the call. Each operator asks before it enqueues.
template <class Params>
bool recorded(const Params& params, const Lane& lane) {
  if (lane.dry_run == nullptr) return false;
  lane.dry_run->record(params);
  return true;
}

}  // namespace heddle
