#include "parallel/registry.h"

#include "parallel/local.h"
#include "parallel/tensor.h"

namespace heddle {

std::unique_ptr<Strategy> make_strategy(const ModelRank& place, const TensorSplit& split, std::int64_t vocab_size) {
  if (place.ranks == 1) return std::make_unique<LocalStrategy>();
  return std::make_unique<TensorStrategy>(place, split.vocabulary, vocab_size);
}

}  // namespace heddle
