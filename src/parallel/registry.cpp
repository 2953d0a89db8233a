#include "parallel/registry.h"

#include "base/error.h"
#include "parallel/context_attention.h"
#include "parallel/context_rows.h"
#include "parallel/fused.h"
#include "parallel/local.h"
#include "parallel/tensor.h"
#include "parallel/token_shards.h"

namespace heddle {

namespace {

std::unique_ptr<Strategy> strategy_of_weights(const ModelRank& place, const TensorSplit& split,
                                              std::int64_t vocab_size) {
  if (place.ranks == 1) return std::make_unique<LocalStrategy>();
  require(place.mode != TpMode::automatic, "a strategy for --tp-mode auto, which nobody has resolved");
  if (place.mode == TpMode::sequence) return std::make_unique<TokenShardStrategy>(place, split.vocabulary, vocab_size);
  if (uses_all_reduce_norm(place.mode)) return std::make_unique<FusedStrategy>(place, split.vocabulary, vocab_size);
  return std::make_unique<TensorStrategy>(place, split.vocabulary, vocab_size);
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const ModelRank& place, const TensorSplit& split, std::int64_t vocab_size) {
  std::unique_ptr<Strategy> strategy = strategy_of_weights(place, split, vocab_size);
  if (place.wrap) strategy = place.wrap(std::move(strategy));
  if (place.shard.ranks == 1) return strategy;
  if (!split.equal_heads)
    throw_error<InputError>(
        "--cp {}: with --tp {} the ranks have different numbers of attention heads; use a --tp that divides the "
        "model's "
        "heads and KV heads",
        place.shard.ranks, place.ranks);
  // The other modes have shares of rows of their own, or parts of a step. On GPUs each rank computes all rows.
  const bool on_gpus = place.fabric != nullptr && place.fabric->device().kind == DeviceKind::cuda;
  const bool in_shares =
      !on_gpus && (place.ranks == 1 || place.mode == TpMode::standard || place.mode == TpMode::symmetric);
  const RowShares shares{.rank = place.shard.rank, .ranks = place.shard.ranks, .always_whole = !in_shares};
  if (in_shares)
    strategy = std::make_unique<ContextRows>(std::move(strategy), shares, place.fabric, place.context_team);
  strategy->spread_attention(
      std::make_unique<ContextAttention>(place.shard, shares, place.fabric, place.context_team, place.alone));
  return strategy;
}

}  // namespace heddle
