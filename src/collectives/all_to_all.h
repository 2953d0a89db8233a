// Piece r of rank s's input becomes piece s of rank r's output. Copies bytes unchanged, as all_gather does.
#pragma once

#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

struct AllToAllParams {
  const void* input;  // [team size, count], by receiver
  void* output;       // [team size, count], by sender; may be input, must not overlap it otherwise
  std::size_t count;  // elements of a piece; the same on every rank; may be 0
  DType dtype;
  Memory memory = Memory::any;  // symmetric: output lies in the symmetric heap; a call in place is staged all the same
};

// Enqueues and throws as all_reduce does.
void all_to_all(Communicator& communicator, const AllToAllParams& params, const Lane& lane);

}  // namespace heddle
