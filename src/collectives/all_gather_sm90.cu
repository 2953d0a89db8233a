// The kernels of all_gather for Hopper: the programs of all_gather.cuh on blocks of a GPU.
#include "collectives/all_gather_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/launch_sm90.cuh"

namespace heddle {

void all_gather_cuda(Communicator& communicator, const AllGatherParams& params, const Choice& choice,
                     const Lane& lane) {
  with_all_gather(communicator, params, choice,
                  [&](const auto& program) { launch(communicator, program, choice, lane); });
}

}  // namespace heddle
