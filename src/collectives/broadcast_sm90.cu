// The kernels of broadcast for Hopper: the programs of broadcast.cuh on blocks of a GPU.
#include "collectives/broadcast_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/launch_sm90.cuh"

namespace heddle {

void broadcast_cuda(Communicator& communicator, const BroadcastParams& params, const Choice& choice, const Lane& lane) {
  with_broadcast(params, choice, [&](const auto& program) { launch(communicator, program, choice, lane); });
}

}  // namespace heddle
