#include "kernels/rows/gather_rows.h"

#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"
#include "kernels/rows/gather_rows_sm90.h"

namespace heddle {
namespace {

void gather_rows_cpu(const GatherRowsParams& params, ThreadPool& pool) {
  const std::size_t element = size_of(params.x.dtype);
  const auto bytes_of = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * element; };
  const auto* x = static_cast<const std::byte*>(params.x.data);
  auto* y = static_cast<std::byte*>(params.y.data);
  pool.parallel_for(params.y.rows, rows_per_piece(params.y.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = params.rows[i];
      require(row >= 0 && row < params.x.rows, "gather_rows: rows[{}] is {}, x has {} rows", i, row, params.x.rows);
      std::memcpy(y + bytes_of(i * params.y.row_stride), x + bytes_of(row * params.x.row_stride),
                  bytes_of(params.y.columns));
    }
  });
}

}  // namespace

void gather_rows(const GatherRowsParams& params, const Lane& lane) {
  require_activation(params.x, params.x.rows, params.x.columns, "gather_rows", "x",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_activation(params.y, params.y.rows, params.x.columns, "gather_rows", "y",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require(params.x.dtype == params.y.dtype, "gather_rows: x is {}, y {}: a copy keeps the dtype",
          name_of(params.x.dtype), name_of(params.y.dtype));
  require_array(params.rows, params.y.rows, "gather_rows", "rows");
  if (params.y.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return gather_rows_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { gather_rows_cpu(params, pool); });
}

}  // namespace heddle
