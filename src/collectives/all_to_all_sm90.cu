// The kernels of all_to_all for Hopper: the programs of all_to_all.cuh on blocks of a GPU.
#include "collectives/all_to_all_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/launch_sm90.cuh"

namespace heddle {

void all_to_all_cuda(Communicator& communicator, const AllToAllParams& params, const Choice& choice, const Lane& lane) {
  with_all_to_all(communicator, params, choice,
                  [&](const auto& program) { launch(communicator, program, choice, lane); });
}

}  // namespace heddle
