#include "parallel/tensor_split.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {
namespace {

// Features come in runs of this many: GEMM kernels read whole vectors of each row. Where ranks get only a few runs,
// equal shares matter more.
constexpr std::int64_t kRun = 64;
constexpr std::int64_t kFewRuns = 16;

Slice slice_of_features(std::int64_t count, int rank, int ranks) {
  if (count / kRun < kFewRuns * ranks) return even_slice(count, rank, ranks);
  const Slice runs = even_slice(ceil_div(count, kRun), rank, ranks);
  const std::int64_t first = runs.first * kRun;
  return {first, std::min(runs.end() * kRun, count) - first};
}

struct Heads {
  Slice heads, kv_heads;
};

Heads heads_of(const SplitSizes& sizes, int rank, int ranks) {
  const int group = sizes.num_heads / sizes.num_kv_heads;  // query heads of a KV head
  if (ranks <= sizes.num_kv_heads) {
    const Slice kv_heads = even_slice(sizes.num_kv_heads, rank, ranks);
    return {kv_heads.times(group), kv_heads};
  }
  for (int kv_head = 0;; ++kv_head) {
    const Slice sharers = even_slice(ranks, kv_head, sizes.num_kv_heads);  // ranks
    if (rank >= sharers.end()) continue;
    const Slice heads = even_slice(group, static_cast<int>(rank - sharers.first), static_cast<int>(sharers.count));
    return {{std::int64_t{kv_head} * group + heads.first, heads.count}, {kv_head, 1}};
  }
}

}  // namespace

Slice even_slice(std::int64_t count, int index, int parts) {
  const std::int64_t each = count / parts, larger = count % parts;
  return {index * each + std::min<std::int64_t>(index, larger), each + (index < larger ? 1 : 0)};
}

TensorSplit tensor_split(const SplitSizes& sizes, int rank, int ranks) {
  require(ranks >= 1 && rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  require(sizes.num_kv_heads >= 1 && sizes.num_heads % sizes.num_kv_heads == 0, "{} heads, {} KV heads",
          sizes.num_heads, sizes.num_kv_heads);
  const auto require_piece = [&](std::int64_t count, const char* of_what) {
    if (ranks > count)
      throw_error<InputError>("{} ranks, but the model has {} {}, and each rank needs one: use {} ranks at most", ranks,
                              count, of_what, count);
  };
  require_piece(sizes.num_heads, "attention heads");
  require_piece(sizes.intermediate, "features in its feed-forward");
  require_piece(sizes.vocab_size, "tokens");
  const Heads heads = heads_of(sizes, rank, ranks);
  return {.rank = rank,
          .ranks = ranks,
          .heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .intermediate = slice_of_features(sizes.intermediate, rank, ranks),
          .vocabulary = even_slice(sizes.vocab_size, rank, ranks),
          .equal_heads =
              sizes.num_heads % ranks == 0 && (sizes.num_kv_heads % ranks == 0 || ranks % sizes.num_kv_heads == 0)};
}

}  // namespace heddle
