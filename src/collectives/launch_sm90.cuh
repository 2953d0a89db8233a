// The one kernel of this room, and its launch.
#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda_call.h"
#include "collectives/communicator.h"
#include "device/group.h"

namespace heddle {

// The most threads of a block; a program whose warps have parts of their own names how many it has.
template <class Program>
inline constexpr int kThreadsOf = 512;
template <class Program>
requires(Program::kBlockThreads > 0) inline constexpr int kThreadsOf<Program> = Program::kBlockThreads;

// With 512 threads 128 registers each: sixteen packets under way and the sums of four fit (docs/notes/collectives.md).
//
// The kernel ahead may let this one start before it has ended (programmatic dependent launch): then the launch is over
// when the data are ready. It touches nothing until the kernel ahead has ended, so calls are ordered as a stream orders
// them; and it lets the next one start only once all of its own blocks are there, so none waits for room.
template <class Program>
__global__ void __launch_bounds__(kThreadsOf<Program>, 1)
    run_collective(const __grid_constant__ Program program, const __grid_constant__ Peers peers,
                   const __grid_constant__ Workspace workspace) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  program(DeviceBlock{}, peers, workspace);
}

// Blocks wait for the same block of the others, never for one of their own rank, so they need not all be resident.
template <class Program>
void launch(const Communicator& communicator, const Program& program, const Choice& choice, Stream& stream) {
  const CurrentDevice current(stream.device().index);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(choice.blocks);
  config.blockDim = static_cast<unsigned>(kThreadsOf<Program> == 512 ? choice.threads : kThreadsOf<Program>);
  config.stream = static_cast<cudaStream_t>(stream.native());
  config.attrs = &attribute;
  // Where ranks share a GPU, a kernel that is there ahead of its time holds an SM that a peer's kernel may need.
  config.numAttrs = communicator.fabric().device_share().ranks > 1 ? 0 : 1;
  // As all kernels of a step have it (device/launch_sm90.cuh): where it differs, a multiprocessor drains in between.
  cudaError_t error = cudaFuncSetAttribute(run_collective<Program>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess)
    error =
        cudaLaunchKernelEx(&config, run_collective<Program>, program, communicator.peers(), communicator.workspace());
  if (error != cudaSuccess) throw_cuda_error("cannot launch a collective", error);
}

}  // namespace heddle
