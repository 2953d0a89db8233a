// The kernels of AllReduceNorm for Hopper: the programs of small_calls.cuh and pipelined_norm.cuh on blocks of a GPU.
#include <type_traits>

#include "device/launch_sm90.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_programs.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_sm90.h"

namespace heddle {
namespace {

template <class Program>
inline constexpr int kNormThreads = 512;
template <class Program>
requires(Program::kBlockThreads > 0) inline constexpr int kNormThreads<Program> = Program::kBlockThreads;

// With PDL the launch latency overlaps the previous kernel, and this kernel touches no memory until that has ended.
template <class Program>
__global__ void __launch_bounds__(kNormThreads<Program>, 1)
    run_norm(const __grid_constant__ Program program, const __grid_constant__ Peers peers,
             const __grid_constant__ AllReduceNormMemory memory) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  program(DeviceBlock{}, peers, memory);
}

__global__ void fill_inbox(Packet* packets, std::size_t count) {
  wait_for_earlier_kernels();
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    clear(packets + i);
}

// Blocks wait for the same block of the others, never for one of their own rank, so they need not all be resident.
template <class X, class Y>
void launch_norm(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                 const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane) {
  with_norm_program<X, Y>(params, rows, launch.regime, launch.blocks, memory.slots_bytes,
                          [&]<class Program>(const Program& program) {
                            int blocks = launch.blocks;
                            if constexpr (requires { program.chunks; }) blocks = program.chunks.blocks();
                            launch_sm90("all_reduce_norm", run_norm<Program>,
                                        {.grid = dim3(static_cast<unsigned>(blocks)),
                                         .block = dim3(static_cast<unsigned>(kNormThreads<Program>)),
                                         .programmatic = launch.programmatic},
                                        lane, program, peers, memory);
                          });
}

}  // namespace

void fill_norm_inbox_sm90(std::byte* inbox, std::size_t bytes, Stream& stream) {
  launch_sm90("all_reduce_norm: inbox", fill_inbox, {.grid = dim3(32), .block = dim3(512), .programmatic = false},
              stream, reinterpret_cast<Packet*>(inbox), bytes / kPacketBytes);
}

void all_reduce_norm_sm90(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                          const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane) {
  const auto run = [&]<class X, class Y>() { launch_norm<X, Y>(params, rows, peers, memory, launch, lane); };
  if (params.x.dtype == DType::bfloat16) return run.template operator()<bfloat16, bfloat16>();
  if (params.x.dtype == DType::float16) return run.template operator()<float16, float16>();
  with_element(params.y.dtype, [&]<class Y>() { run.template operator()<float, Y>(); });
}

}  // namespace heddle
