// output = the sum of input over the ranks of a team, on every rank. Each element is summed in float32, in rank order,
// and rounded once: every rank, run and algorithm gives the same bits, except NCCL. A NaN has the same payload on every
// rank.
#pragma once

#include <optional>

#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

struct AllReduceParams {
  const void* input;  // [count]
  void* output;       // [count]; may be input, must not overlap it otherwise
  std::size_t count;  // the same on every rank; may be 0
  DType dtype;
  Memory memory = Memory::any;        // symmetric: input and output lie in the symmetric heap
  std::optional<Choice> choice = {};  // the same on every rank, in place of the tables'; nothing: the tables'
};

// Enqueues. On a GPU a call has no more blocks than the lane has SMs, but NCCL takes what it chooses. The lanes of all
// ranks must have as many SMs: the algorithm and its blocks follow from them. Their GPUs do, as the communicator has
// checked; a caller that passes a part of one passes as large a part on every rank. Throws InvalidArgument for a null or a
// partly overlapping buffer, for a count beyond memory, and for Memory::symmetric with a buffer outside the symmetric
// heap or not aligned to 16 bytes. Calls that differ between ranks: see CommunicatorOptions::checked_calls.
void all_reduce(Communicator& communicator, const AllReduceParams& params, const Lane& lane);

}  // namespace heddle
