// The kernels of AllReduceNorm for Hopper: the programs of small_calls.cuh and pipelined_norm.cuh on blocks of a GPU.
#include <type_traits>

#include "base/alignment.h"
#include "device/launch_sm90.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_programs.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_sm90.h"
#include "fused/all_reduce_norm/bulk_norm.cuh"

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

template <class Program>
void launch_norm_program(const Program& program, int blocks, std::size_t shared_bytes, const Peers& peers,
                         const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane) {
  launch_sm90("all_reduce_norm", run_norm<Program>,
              {.grid = dim3(static_cast<unsigned>(blocks)),
               .block = dim3(static_cast<unsigned>(kNormThreads<Program>)),
               .shared_bytes = shared_bytes,
               .programmatic = launch.programmatic},
              lane, program, peers, memory);
}

// On two H200s TMA was faster on up to so many SMs, by 1.18 on 16, and slower by 6 % on 64.
constexpr int kMostBulkBlocks = 32;
// With four ranks on a GPU the course of random calls did not end by TMA, and does by loads and stores; the cause is not known.
constexpr int kMostBulkRanks = 2;

// Whether the rows fit the registers and shared memory of bulk_norm.cuh, TMA takes their addresses, and it is faster.
template <class X, class Y>
bool goes_in_bulk(const PipelinedNorm<X, Y>& program, const Peers& peers, std::int64_t most_hidden) {
  const NormRows<X, Y>& rows = program.rows;
  return peers.size > 1 && peers.size <= kMostBulkRanks && program.chunks.blocks() <= kMostBulkBlocks &&
         rows.hidden <= most_hidden &&
         NormRoom::fits(static_cast<std::size_t>(rows.hidden), rows.x_bytes(), rows.y_bytes(),
                        static_cast<std::size_t>(program.chunks.chunk_rows())) &&
         is_aligned(rows.x) && is_aligned(rows.y) && is_aligned(rows.residual) && is_aligned(rows.weight);
}

// A pipelined call by TMA where that takes the rows, else by ordinary loads and stores.
template <class X, class Y>
void launch_pipelined(const PipelinedNorm<X, Y>& program, const Peers& peers, const AllReduceNormMemory& memory,
                      const AllReduceNormLaunch& launch, const Lane& lane) {
  const NormRows<X, Y>& rows = program.rows;
  const int blocks = program.chunks.blocks();
  const auto in_bulk = [&]<int kQuads>(std::integral_constant<int, kQuads>) {
    using Bulk = BulkNorm<X, Y, kQuads>;
    if (!goes_in_bulk(program, peers, Bulk::kMostHidden)) return false;
    const NormRoom room(static_cast<std::size_t>(rows.hidden), rows.x_bytes(), rows.y_bytes(),
                        static_cast<std::size_t>(program.chunks.chunk_rows()));
    launch_norm_program(Bulk{rows, program.chunks, room}, blocks, room.bytes(), peers, memory, launch, lane);
    return true;
  };
  if (in_bulk(std::integral_constant<int, 4>{}) || in_bulk(std::integral_constant<int, 8>{})) return;
  launch_norm_program(program, blocks, 0, peers, memory, launch, lane);
}

// Blocks wait for the same block of the others, never for one of their own rank, so they need not all be resident.
template <class X, class Y>
void launch_norm(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                 const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane) {
  with_norm_program<X, Y>(params, rows, launch.regime, launch.blocks, memory.slots_bytes,
                          [&]<class Program>(const Program& program) {
                            if constexpr (std::is_same_v<Program, PipelinedNorm<X, Y>>)
                              launch_pipelined(program, peers, memory, launch, lane);
                            else
                              launch_norm_program(program, launch.blocks, 0, peers, memory, launch, lane);
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
