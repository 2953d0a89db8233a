// The GEMM of fused operators whose A has few rows: W streams through shared memory, and by PDL it begins to while the
// kernel ahead gathers A. Defined only in builds with CUDA.
#pragma once

#include <algorithm>

#include "base/lane.h"
#include "fused/rows_of.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_sm90_batch.h"

namespace heddle {

// The most rows of such a GEMM.
inline constexpr std::int64_t kSmallM = kLinearBatchRows;

// linear() of at most kSmallM rows that needs no workspace, whatever the operands are.
inline void linear_small_m(const LinearParams& params, const Lane& lane) {
  const std::int64_t m = params.x.rows;
  if (m <= kLinearSmallRows || is_for_batch(params, lane)) return linear(params, lane);
  for (std::int64_t first = 0; first < m; first += kLinearSmallRows) {
    const std::int64_t rows = std::min(kLinearSmallRows, m - first);
    LinearParams part = params;
    part.x = rows_of(params.x, first, rows);
    part.y = rows_of(params.y, first, rows);
    linear(part, lane);
  }
}

}  // namespace heddle
