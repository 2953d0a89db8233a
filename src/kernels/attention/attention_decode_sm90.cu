// Attention for few new tokens of a sequence and many keys: y, or sums (attention_decode_kernel_sm90.cuh).
#include "kernels/attention/attention_decode_sm90.h"

#include "base/checked.h"
#include "kernels/attention/attention_decode_kernel_sm90.cuh"
#include "kernels/attention/attention_decode_output_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

bool takes_kv(const PagedKv& kv) {
  return with_head_dim(kv.head_dim, [](auto) {}) && copied_by_boxes(kv);
}

}  // namespace

bool attention_decode_takes(const AttentionParams& params) {
  if (params.sums.first != nullptr && !SumsOfUnits::take(params)) return false;
  // Of one of several ranks' caches a single new token sees all that is there; others, or a window, may end anywhere.
  if (params.kv.shard.ranks > 1 && (params.sequences.max_query_len > 1 || params.window > 0)) return false;
  return takes_kv(params.kv) && takes_groups(params.q, 2) && takes_groups(params.y, 4);
}

std::size_t attention_decode_scratch_bytes(int head_dim) {
  return kMaxDecodeBlocks * 2 * kMostItemRows * (static_cast<std::size_t>(head_dim) + 2) * sizeof(std::uint32_t);
}

std::size_t attention_decode_plan_bytes(int max_sequences, int num_kv_heads, int max_rows) {
  const int most_items = ceil_div(max_rows, kFewestItemRows);  // per sequence and KV head
  return (kMaxDecodeBlocks + static_cast<std::size_t>(max_sequences) * static_cast<std::size_t>(num_kv_heads) *
                                 static_cast<std::size_t>(most_items)) *
         sizeof(DecodeSplit);
}

void plan_attention_decode_sm90(const AttentionPlanParams& params, int max_rows, const Lane& lane) {
  if (!takes_kv(params.kv)) return;
  const AttentionParams attention{.kv = params.kv,
                                  .sequences = params.sequences,
                                  .num_heads = params.num_heads,
                                  .window = params.window,
                                  .older_keys = params.older_keys};
  with_decode_kernel<RowsOfY>(attention, max_rows, lane,
                              [&](auto /*kernel*/, const LaunchShape& shape, const DecodeParams& decode) {
                                plan_decode(decode, static_cast<int>(shape.grid.x), params.plan, lane);
                              });
}

void attention_decode_sm90(const AttentionParams& params, int max_rows, const Lane& lane) {
  if (params.sums.first != nullptr) return launch_decode(params, max_rows, lane, SumsOfUnits{});
  launch_decode(params, max_rows, lane, RowsOfY{});
}

}  // namespace heddle
