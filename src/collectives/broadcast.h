// The root's input becomes every rank's output. Bytes as in all_gather.
#pragma once

#include "collectives/communicator.h"

namespace heddle {

struct BroadcastParams {
  const void* input;  // [count]; read on the root alone
  void* output;       // [count]; may be input, must not overlap it otherwise
  std::size_t count;  // the same on every rank; may be 0
  DType dtype;
  int root = 0;                 // in the team; the same on every rank
  Memory memory = Memory::any;  // symmetric: output is
};

// Enqueues. Throws as all_reduce, and when the root is not of the team.
void broadcast(Communicator& communicator, const BroadcastParams& params, Stream& stream);

}  // namespace heddle
