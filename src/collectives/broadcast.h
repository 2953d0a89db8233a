// The root's input becomes every rank's output. Copies bytes unchanged, as all_gather does.
#pragma once

#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

struct BroadcastParams {
  const void* input;  // [count]; only the root reads it
  void* output;       // [count]; may be input, must not overlap it otherwise
  std::size_t count;  // the same on every rank; may be 0
  DType dtype;
  int root = 0;                 // a rank of the team; the same on every rank
  Memory memory = Memory::any;  // symmetric: output lies in the symmetric heap
};

// Enqueues and throws as all_reduce does. Throws also when the root is not a rank of the team.
void broadcast(Communicator& communicator, const BroadcastParams& params, const Lane& lane);

}  // namespace heddle
