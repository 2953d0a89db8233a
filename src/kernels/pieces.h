// How finely operators cut their loops for ThreadPool::parallel_for.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle {

// Rows to a piece so that a piece takes tens of microseconds: long beside the few that handing it out costs, short
// beside a step. `row_elements`: elements that a row of the loop reads or multiplies, about 4 to 10 of them a
// nanosecond.
inline std::int64_t rows_per_piece(std::int64_t row_elements) {
  constexpr std::int64_t kPieceElements = 1 << 17;
  return std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, row_elements));
}

}  // namespace heddle
