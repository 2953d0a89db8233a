// Context parallelism: the keys and values of each sequence are divided over ranks by position (schedule/zigzag.h), and
// each of these ranks has the same part of the weights. Every rank has the queries of all rows and writes the keys of its
// own positions; its part of attention (o, m, l) goes to the others, and all merge (fused/flash_decode), each the rows of
// its share where a step is divided (context_rows.h). A rank without keys of a sequence contributes nothing. Causal work is balanced, because ranks take turns in zigzag.
#pragma once

#include <memory>

#include "fused/flash_decode/flash_decode.h"
#include "parallel/attention_strategy.h"

namespace heddle {

class ContextAttention final : public AttentionStrategy {
 public:
  // Of the symmetric heap of each rank: of addresses, the system gives memory to what steps touch.
  static constexpr std::size_t kHeapBytes = std::size_t{64} << 20;

  // This rank is team[shard.rank]. All ranks of the fabric's world have such a strategy for models of the same heads.
  // `alone` is ModelRank's. Without a fabric: for dry runs only.
  ContextAttention(KvShard shard, const RowShares& shares, Fabric* fabric, Ranks team, const bool* alone)
      : shard_(shard), shares_(shares), fabric_(fabric), team_(std::move(team)), alone_(alone) {}

  KvShard shard() const override { return shard_; }
  // Collective over the fabric's world at the first call that is not a dry run's: on GPUs one of a warm-up, in which
  // nobody waits for a kernel.
  void attend(const AttentionParams& params, const Lane& lane) override;

 private:
  FlashDecode& decode_for(const AttentionParams& params);

  KvShard shard_;
  RowShares shares_;
  Fabric* fabric_;
  Ranks team_;
  const bool* alone_;
  std::unique_ptr<FlashDecode> decode_;
};

}  // namespace heddle
