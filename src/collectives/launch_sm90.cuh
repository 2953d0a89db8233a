// The one kernel of this room, and its launch.
#pragma once

#include "collectives/communicator.h"
#include "device/group.h"
#include "device/launch_sm90.cuh"

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
                   const __grid_constant__ CollectiveMemory memory) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  program(DeviceBlock{}, peers, memory);
}

// Blocks wait for the same block of the others, never for one of their own rank, so they need not all be resident.
template <class Program>
void launch(const Communicator& communicator, const Program& program, const Choice& choice, Stream& stream) {
  const int threads = kThreadsOf<Program> == 512 ? choice.threads : kThreadsOf<Program>;
  launch_sm90("collective", run_collective<Program>,
              {.grid = dim3(static_cast<unsigned>(choice.blocks)),
               .block = dim3(static_cast<unsigned>(threads)),
               // Where ranks share a GPU, a kernel that starts early holds an SM that a peer's kernel may need.
               .programmatic = communicator.fabric().device_share().ranks == 1},
              stream, program, communicator.peers(), communicator.collective_memory());
}

}  // namespace heddle
