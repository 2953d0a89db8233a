#include "kernels/attention/gather_latents.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/gather_latents_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

void gather_latents_cpu(const GatherLatentsParams& params, int sequence, ThreadPool& pool) {
  const PagedKv& kv = params.kv;
  const std::int32_t* page_table = params.page_table + std::ptrdiff_t{sequence} * params.page_table_stride;
  const std::int64_t first_row = params.sequences.first_key_row(sequence), count = params.sequences[sequence].num_keys;
  const std::int64_t end =
      sequence + 1 < params.sequences.count ? params.sequences.first_key_row(sequence + 1) : first_row + count;
  pool.parallel_for(end - first_row, rows_per_piece(kv.head_dim), [&](std::int64_t begin, std::int64_t piece_end) {
    for (std::int64_t i = begin; i < piece_end; ++i) {
      void* const to = params.rows.row_slice(first_row + i, 1).data;
      if (i >= count) {
        std::memset(to, 0, static_cast<std::size_t>(kv.head_dim) * size_of(params.rows.dtype));
        continue;
      }
      const auto position = static_cast<int>(params.first + i);
      const std::int32_t page = page_table[position / kv.page_size];
      const auto* from =
          static_cast<const std::byte*>(kv.keys) + kv.offset(page, 0, position % kv.page_size) * size_of(kv.dtype);
      convert(from, kv.dtype, to, params.rows.dtype, static_cast<std::size_t>(kv.head_dim));
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
  require_activation(params.rows, params.sequences.num_key_rows(), kv.head_dim, "gather_latents", "rows",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_array(kv.keys, params.rows.rows, "gather_latents", "kv.keys");
  require_array(params.page_table, params.rows.rows, "gather_latents", "page_table");
  if (params.rows.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return gather_latents_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) {
    for (int i = 0; i < params.sequences.count; ++i) gather_latents_cpu(params, i, pool);
  });
}

}  // namespace heddle
