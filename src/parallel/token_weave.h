// Two parts of a step interleaved on two lanes (TokenWeave, 3.1.2): while one part computes, the other's sums over the
// ranks, residual and norm are on their way.
//
//   computation   | block 0 of a | block 0 of b | block 1 of a | block 1 of b | ...
//   transfers           | norm 0 of b | norm 1 of a | norm 1 of b | norm 2 of a | ...
#pragma once

#include <span>

#include "parallel/execution.h"
#include "parallel/strategy.h"

namespace heddle {

// As Strategy::run with two parts, over execution.compute and *execution.transfers; all transfers are behind `compute` at
// the end. Enqueues the same work for each part, in the same order, as one part after the other would, so on the CPU its
// results have the same bits. May be captured in a graph.
void run_in_turns(Strategy& strategy, const Blocks& blocks, std::span<const PartRows> parts,
                  const Execution& execution);

}  // namespace heddle
