// A dry run: a forward pass whose operators check and record their params and enqueue nothing. It shows what a step
// computes, in what order, without weights, memory (base/stand_in.h) or a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include "base/lane.h"
#include "base/stream.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/copy_pages.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/attention/gather_latents.h"
#include "kernels/attention/kv_write.h"
#include "kernels/attention/latent_kv_write.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_kv_write.h"
#include "kernels/linear/head_linear.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"
#include "kernels/moe/combine_experts.h"
#include "kernels/moe/group_rows.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouped_swiglu.h"
#include "kernels/moe/mixture.h"
#include "kernels/moe/route.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/rmsnorm.h"
#include "kernels/rows/swiglu.h"
#include "kernels/sampling/argmax.h"
#include "kernels/sampling/sample.h"
#include "kernels/sampling/take_tokens.h"

namespace heddle {

// The params of any operator. Their addresses are stand-ins without memory.
using OperatorCall =
    std::variant<ArgmaxParams, AttentionParams, AttentionPlanParams, CombineExpertsParams, CopyPagesParams,
                 EmbeddingParams, ExpandedAttentionParams, GatherLatentsParams, GatherRowsParams, GroupRowsParams,
                 GroupedLinearParams, GroupedSwigluParams, HeadLinearParams, KvWriteParams, LatentKvWriteParams,
                 LinearParams, LinearSwigluParams, MixtureParams, RmsNormParams, RopeKvWriteParams, RopeParams,
                 RouteParams, SampleParams, SwigluParams, TakeTokensParams>;

class DryRun {
 public:
  // For a forward pass on `device`, which need not exist.
  explicit DryRun(Device device) : stream_(Stream::refusing(device)) {}
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  Lane lane() { return {stream_, *this}; }

  void record(const OperatorCall& call) { calls_.push_back(call); }

  // Exchanges between ranks take nothing in a dry run, but say what they would keep of symmetric memory while the model
  // lives.
  void keep_symmetric(std::size_t bytes) { symmetric_bytes_ = std::max(symmetric_bytes_, bytes); }
  std::size_t symmetric_bytes() const { return symmetric_bytes_; }

  // A step's rows that lie in symmetric memory, and take nothing of the arena.
  void take_symmetric_rows(std::size_t bytes) { symmetric_row_bytes_ = std::max(symmetric_row_bytes_, bytes); }
  std::size_t symmetric_row_bytes() const { return symmetric_row_bytes_; }

  // The calls in order, without those that have nothing to do. A fused operator is one call where it has a kernel of
  // its own (linear_swiglu, grouped_swiglu); rope_kv_write always is.
  const std::vector<OperatorCall>& calls() const { return calls_; }

 private:
  Stream stream_;
  std::vector<OperatorCall> calls_;
  std::size_t symmetric_bytes_ = 0, symmetric_row_bytes_ = 0;
};

// Records the call if the lane is a dry run's; then the operator enqueues nothing. Every operator calls this first.
template <class Params>
bool recorded(const Params& params, const Lane& lane) {
  if (lane.dry_run == nullptr) return false;
  lane.dry_run->record(params);
  return true;
}

}  // namespace heddle
