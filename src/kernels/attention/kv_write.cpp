#include "kernels/attention/kv_write.h"

#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/kv_write_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

void write_row(const Tensor& x, std::int64_t token, void* pages, const PagedKv& kv, std::int32_t page, int slot) {
  const float* row = static_cast<const float*>(x.data) + token * x.row_stride;
  for (int head = 0; head < kv.num_kv_heads; ++head)
    convert(row + static_cast<std::ptrdiff_t>(head) * kv.head_dim, DType::float32,
            static_cast<std::byte*>(pages) + kv.offset(page, head, slot) * size_of(kv.dtype), kv.dtype,
            static_cast<std::size_t>(kv.head_dim));
}

void kv_write_cpu(const KvWriteParams& params, ThreadPool& pool) {
  const PagedKv& kv = params.kv;
  const PagedSequences& sequences = params.sequences;
  const std::int32_t* starts_end = sequences.query_start + sequences.num_sequences + 1;
  pool.parallel_for(params.k.rows, rows_per_piece(8 * params.k.columns), [&](std::int64_t begin, std::int64_t end) {
    // The sequence of row `begin`: the last one that starts there or before; empty sequences are skipped.
    auto sequence =
        static_cast<int>(std::upper_bound(sequences.query_start, starts_end, begin) - sequences.query_start) - 1;
    for (std::int64_t token = begin; token < end; ++token) {
      while (token >= sequences.query_start[sequence + 1]) ++sequence;
      const auto from_end = static_cast<int>(sequences.query_start[sequence + 1] - token);
      const int position = sequences.context_len[sequence] - from_end;
      if (!kv.has(position)) continue;
      const int place = kv.place(position);
      const std::int32_t page = sequences.pages(sequence)[place / kv.page_size];
      write_row(params.k, token, kv.keys, kv, page, place % kv.page_size);
      write_row(params.v, token, kv.values, kv, page, place % kv.page_size);
    }
  });
}

}  // namespace

void kv_write(const KvWriteParams& params, const Lane& lane) {
  require_paged_kv(params.kv, params.sequences, params.k.rows, "kv_write");
  const std::int64_t columns = std::int64_t{params.kv.num_kv_heads} * params.kv.head_dim;
  require_activation(params.k, params.k.rows, columns, "kv_write", "k",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require_activation(params.v, params.k.rows, columns, "kv_write", "v",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require(params.k.dtype == params.v.dtype, "kv_write: k is {}, v {}: expected the same", name_of(params.k.dtype),
          name_of(params.v.dtype));
  if (params.k.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return kv_write_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { kv_write_cpu(params, pool); });
}

}  // namespace heddle
