// What rank 0 chooses of how a step is computed, where ranks could do it in several ways. The choices travel in the
// StepPlan and every rank obeys: no rank decides by a table of its own, which could say something else.
#pragma once

#include <compare>
#include <cstdint>

namespace heddle {

struct StepChoices {
  static constexpr std::int16_t kByDefault = -1;

  // Of ranks that have the fused operator: sum over ranks, residual and norm in one; otherwise an all-reduce, then the norm.
  bool fused_sums = true;
  // Of the all-reduces of what blocks leave: an Algorithm (collectives/algorithm.h) with its blocks and threads per block.
  std::int16_t sum_algorithm = kByDefault;
  std::int16_t sum_blocks = 1;
  std::int16_t sum_threads = 512;

  friend auto operator<=>(const StepChoices&,
                          const StepChoices&) = default;  // NOLINT(modernize-use-nullptr): compares with 0
};

}  // namespace heddle
