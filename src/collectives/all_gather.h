// The inputs of all ranks of a team, one after the other, on every rank. Moves bytes: every bit pattern arrives as it is.
#pragma once

#include "collectives/communicator.h"

namespace heddle {

struct AllGatherParams {
  const void* input;  // [count]
  void* output;       // [team size, count]; the own piece may be input, it must not overlap otherwise
  std::size_t count;  // of a piece; the same on every rank; may be 0
  DType dtype;
  Memory memory = Memory::any;  // symmetric: output is
};

// Enqueues. Throws as all_reduce.
void all_gather(Communicator& communicator, const AllGatherParams& params, Stream& stream);

}  // namespace heddle
