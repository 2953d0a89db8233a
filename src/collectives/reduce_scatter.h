// Piece r of the sum of input over the ranks of a team, on rank r. Summed as all_reduce sums.
#pragma once

#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

struct ReduceScatterParams {
  const void* input;  // [team size, count]
  void* output;       // [count]; may be the own piece of input, must not overlap input otherwise
  std::size_t count;  // of a piece; the same on every rank; may be 0
  DType dtype;
  Memory memory = Memory::any;  // symmetric: input is
};

// Enqueues and throws as all_reduce does.
void reduce_scatter(Communicator& communicator, const ReduceScatterParams& params, const Lane& lane);

}  // namespace heddle
