// output = the sum of input over the ranks of a team, on every rank. Each element is summed in float32, in rank order,
// and rounded once: the same bits on every rank, in every run and by every algorithm but NCCL's. (Which NaN it is,
// where the sum is none, is the same on every rank.)
#pragma once

#include "collectives/communicator.h"

namespace heddle {

struct AllReduceParams {
  const void* input;  // [count]
  void* output;       // [count]; may be input, must not overlap it otherwise
  std::size_t count;  // the same on every rank; may be 0
  DType dtype;
  Memory memory = Memory::any;  // symmetric: both are
};

// Enqueues. Throws InvalidArgument for a null or a partly overlapping buffer, a count beyond memory, and memory that is
// said to be symmetric but is not, or is not aligned to 16 bytes; and as CommunicatorOptions::checked_calls says.
void all_reduce(Communicator& communicator, const AllReduceParams& params, Stream& stream);

}  // namespace heddle
