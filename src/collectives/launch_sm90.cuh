// The kernel that runs every collective program, and its launch.
#pragma once

#include "collectives/communicator.h"
#include "device/group.h"
#include "device/launch_sm90.cuh"

namespace heddle {

// The maximum number of threads of a block. A program with specialised warps names its exact number.
template <class Program>
inline constexpr int kThreadsOf = 512;
template <class Program>
requires(Program::kBlockThreads > 0) inline constexpr int kThreadsOf<Program> = Program::kBlockThreads;

// With 512 threads each has 128 registers: enough for sixteen packets in flight and the sums of four
// (docs/notes/collectives.md).
//
// With PDL the launch latency overlaps the previous kernel. This kernel touches no memory until the previous one has
// ended, so calls keep stream order. The next kernel starts only once all blocks of this one are resident, so none of
// them waits for an SM.
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
void launch(const Communicator& communicator, const Program& program, const Choice& choice, const Lane& lane) {
  const int threads = kThreadsOf<Program> == 512 ? choice.threads : kThreadsOf<Program>;
  launch_sm90("collective", run_collective<Program>,
              {.grid = dim3(static_cast<unsigned>(choice.blocks)),
               .block = dim3(static_cast<unsigned>(threads)),
               // Where ranks share a GPU, a kernel that starts early holds an SM that a peer's kernel may need.
               .programmatic = communicator.fabric().device_share().ranks == 1},
              lane, program, communicator.peers(), communicator.collective_memory());
}

}  // namespace heddle
