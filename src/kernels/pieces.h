// The granularity of ThreadPool::parallel_for in operators.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle {

// Rows per piece such that a piece takes tens of microseconds: long compared with the few that scheduling it costs,
// short compared with a step. `row_elements`: elements that a row reads or multiplies, about 4 to 10 of them per
// nanosecond.
inline std::int64_t rows_per_piece(std::int64_t row_elements) {
  constexpr std::int64_t kPieceElements = 1 << 17;
  return std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, row_elements));
}

}  // namespace heddle
