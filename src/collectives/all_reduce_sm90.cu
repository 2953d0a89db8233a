// The kernels of all_reduce for Hopper: the programs of all_reduce.cuh on blocks of a GPU.
#include "collectives/all_reduce_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/launch_sm90.cuh"

namespace heddle {

void all_reduce_cuda(Communicator& communicator, const AllReduceParams& params, const Choice& choice,
                     const Lane& lane) {
  with_all_reduce(communicator, params, choice,
                  [&](const auto& program) { launch(communicator, program, choice, lane); });
}

}  // namespace heddle
