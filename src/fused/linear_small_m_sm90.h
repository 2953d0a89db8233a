// The small-M GEMM of fused operators. By programmatic dependent launch (PDL) it loads W while the preceding kernel still
// gathers A. Defined only in builds with CUDA.
#pragma once

#include <algorithm>

#include "base/lane.h"
#include "fused/rows_of.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_sm90_batch.h"

namespace heddle {

// linear() of operands that it takes, in parts of few rows where the lane has no workspace for cuBLASLt. As with linear(),
// the first call with more than 64 rows comes before a graph capture.
inline void linear_small_m(const LinearParams& params, const Lane& lane) {
  const std::int64_t m = params.x.rows;
  if (m <= kLinearSmallRows) return linear(params, lane);
  if (is_for_batch(params, lane)) return linear_batch(params, lane);
  if (lane.workspace.size_bytes >= linear_workspace_bytes(lane.stream.device())) return linear(params, lane);
  const std::int64_t most = m > kLinearBatchRows ? kLinearBatchRows : kLinearSmallRows;
  for (std::int64_t first = 0; first < m; first += most) {
    const std::int64_t rows = std::min(most, m - first);
    LinearParams part = params;
    part.x = rows_of(params.x, first, rows);
    part.y = rows_of(params.y, first, rows);
    linear_small_m(part, lane);
  }
}

}  // namespace heddle
