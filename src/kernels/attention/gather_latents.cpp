#include "kernels/attention/gather_latents.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/gather_latents_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

void gather_latents_cpu(const GatherLatentsParams& params, ThreadPool& pool) {
  const PagedKv& kv = params.kv;
  pool.parallel_for(params.rows.rows, rows_per_piece(kv.head_dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto position = static_cast<int>(params.first + row);
      const std::int32_t page = params.page_table[position / kv.page_size];
      const auto* from =
          static_cast<const std::byte*>(kv.keys) + kv.offset(page, 0, position % kv.page_size) * size_of(kv.dtype);
      convert(from, kv.dtype, params.rows.row_slice(row, 1).data, params.rows.dtype,
              static_cast<std::size_t>(kv.head_dim));
    }
  });
}

}  // namespace

void gather_latents(const GatherLatentsParams& params, const Lane& lane) {
  const PagedKv& kv = params.kv;
  require(kv.num_kv_heads == 1 && kv.page_size > 0 && kv.head_dim > 0,
          "gather_latents: num_kv_heads {}, page_size {} and head_dim {}: expected one head, and sizes above 0",
          kv.num_kv_heads, kv.page_size, kv.head_dim);
  require(kv.shard.ranks == 1, "gather_latents: the cache is one of {} ranks'", kv.shard.ranks);
  require(params.first >= 0, "gather_latents: first is {}", params.first);
  require_activation(params.rows, params.rows.rows, kv.head_dim, "gather_latents", "rows",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_array(kv.keys, params.rows.rows, "gather_latents", "kv.keys");
  require_array(params.page_table, params.rows.rows, "gather_latents", "page_table");
  if (params.rows.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return gather_latents_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { gather_latents_cpu(params, pool); });
}

}  // namespace heddle
