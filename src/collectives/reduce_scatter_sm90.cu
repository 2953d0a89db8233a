// The kernels of reduce_scatter for Hopper: the programs of reduce_scatter.cuh on blocks of a GPU.
#include "collectives/collectives_cuda.h"
#include "collectives/launch_sm90.cuh"
#include "collectives/reduce_scatter_programs.cuh"

namespace heddle {

void reduce_scatter_cuda(Communicator& communicator, const ReduceScatterParams& params, const Choice& choice,
                         const Lane& lane) {
  with_reduce_scatter(communicator, params, choice,
                      [&](const auto& program) { launch(communicator, program, choice, lane); });
}

}  // namespace heddle
