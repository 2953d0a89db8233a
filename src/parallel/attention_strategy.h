// How attention reaches the keys of a sequence: an axis of its own beside that of weights (Strategy), with a team of its
// own.
#pragma once

#include "base/lane.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

class AttentionStrategy {
 public:
  virtual ~AttentionStrategy() = default;

  // Which part of each sequence's keys and values this rank has.
  virtual KvShard shard() const { return {}; }

  // y = attention over all keys of the sequences, wherever they are: params as attention() takes them, with this rank's
  // cache. The ranks that divide the keys call it in the same order with the same rows.
  virtual void attend(const AttentionParams& params, const Lane& lane) = 0;
};

// All keys are here.
class LocalAttention final : public AttentionStrategy {
 public:
  void attend(const AttentionParams& params, const Lane& lane) override { attention(params, lane); }
};

}  // namespace heddle
