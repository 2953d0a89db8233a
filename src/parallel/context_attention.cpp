#include "parallel/context_attention.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/attention/attention_sums.h"
#include "kernels/dry_run.h"

namespace heddle {

// As many rows at once as the heap has room for.
FlashDecode& ContextAttention::decode_for(const AttentionParams& params) {
  if (decode_ != nullptr) return *decode_;
  require(fabric_ != nullptr, "context parallelism: no fabric, as for dry runs");
  constexpr int kMostRows = 512;
  FlashDecodeLimits limits{.max_sequences = kMostRows,
                           .num_heads = params.num_heads,
                           .num_kv_heads = params.kv.num_kv_heads,
                           .head_dim = params.kv.head_dim,
                           .value_dim = params.value_dim};
  while (limits.max_sequences > 1 && FlashDecode::heap_bytes(fabric_->size(), limits) > kHeapBytes)
    limits.max_sequences /= 2;
  decode_ = std::make_unique<FlashDecode>(*fabric_, team_, limits);
  return *decode_;
}

void ContextAttention::attend(const AttentionParams& params, const Lane& lane) {
  if (lane.dry_run != nullptr) {
    require_attention(params, lane);
    if (params.q.rows > 0) static_cast<void>(recorded(params, lane));
    return;
  }
  FlashDecode& decode = decode_for(params);
  if (alone_ != nullptr && *alone_) return decode.attend_alone(params, lane);
  decode.attend(params, shares_, lane);
}

}  // namespace heddle
