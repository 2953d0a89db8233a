#include "parallel/registry.h"

#include "base/error.h"
#include "parallel/fused.h"
#include "parallel/local.h"
#include "parallel/tensor.h"
#include "parallel/token_shards.h"

namespace heddle {

std::unique_ptr<Strategy> make_strategy(const ModelRank& place, const TensorSplit& split, std::int64_t vocab_size) {
  if (place.ranks == 1) return std::make_unique<LocalStrategy>();
  require(place.mode != TpMode::automatic, "a strategy for --tp-mode auto, which nobody has resolved");
  if (uses_all_reduce_norm(place.mode)) return std::make_unique<FusedStrategy>(place, split.vocabulary, vocab_size);
  if (place.mode == TpMode::sequence) return std::make_unique<TokenShardStrategy>(place, split.vocabulary, vocab_size);
  return std::make_unique<TensorStrategy>(place, split.vocabulary, vocab_size);
}

}  // namespace heddle
