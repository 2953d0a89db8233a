// output = the inputs of all ranks of a team, in rank order, on every rank. Copies bytes: every bit pattern arrives
// unchanged.
#pragma once

#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

struct AllGatherParams {
  const void* input;  // [count]
  void* output;       // [team size, count]; input may be this rank's piece of it, but must not overlap it otherwise
  std::size_t count;  // elements of a piece; the same on every rank; may be 0
  DType dtype;
  Memory memory = Memory::any;  // symmetric: output lies in the symmetric heap
};

// Enqueues and throws as all_reduce does.
void all_gather(Communicator& communicator, const AllGatherParams& params, const Lane& lane);

}  // namespace heddle
