// The kernel of barrier for Hopper: one block.
#include "collectives/barrier.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/launch_sm90.cuh"

namespace heddle {

void barrier_cuda(Communicator& communicator, const Choice& choice, const Lane& lane) {
  launch(communicator, FlagBarrier{}, {choice.algorithm, 1, choice.threads}, lane);
}

}  // namespace heddle
