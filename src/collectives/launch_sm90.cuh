// The one kernel of this room, and its launch.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"
#include "collectives/communicator.h"
#include "fabric/group.h"

namespace heddle {

// 128 registers a thread: sixteen packets under way and the sums of four fit (see docs/notes/collectives.md).
template <class Program>
__global__ void __launch_bounds__(512, 1)
    run_collective(const __grid_constant__ Program program, const __grid_constant__ Peers peers,
                   const __grid_constant__ Workspace workspace) {
  program(DeviceBlock{}, peers, workspace);
}

// Blocks wait for the same block of the others, never for one of their own rank, so they need not all be resident.
template <class Program>
void launch(const Communicator& communicator, const Program& program, const Choice& choice, Stream& stream) {
  run_collective<<<choice.blocks, choice.threads, 0, static_cast<cudaStream_t>(stream.native())>>>(
      program, communicator.peers(), communicator.workspace());
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw Failure(std::string("cannot launch a collective: ") + cudaGetErrorString(error));
}

}  // namespace heddle
