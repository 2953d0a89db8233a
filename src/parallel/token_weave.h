// Two parts of a step interleaved on two lanes (TokenWeave, 3.1.2): while one part computes, the other's sums over the
// ranks, residual and norm are on their way.
#pragma once

#include <span>

#include "parallel/execution.h"
#include "parallel/strategy.h"

namespace heddle {

// As Strategy::run with two parts, over execution.compute and *execution.transfers; all transfers are behind `compute` at
// the end. Enqueues the same work for each part, in the same order, as one part after the other would, so on the CPU its
// results have the same bits. May be captured in a graph.
void run_interleaved(Strategy& strategy, const Blocks& blocks, std::span<const PartRows> parts,
                     const Execution& execution);

}  // namespace heddle
