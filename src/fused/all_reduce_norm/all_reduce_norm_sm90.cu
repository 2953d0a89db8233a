// The kernels of AllReduceNorm for Hopper: the programs of small_calls.cuh and pipelined_norm.cuh on blocks of a GPU, and
// the kernel of direct_norm.cuh.
#include <type_traits>

#include "base/alignment.h"
#include "base/error.h"
#include "device/launch_sm90.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_programs.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_sm90.h"
#include "fused/all_reduce_norm/direct_norm_sm90.cuh"

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

constexpr int kNarrowQuads = 4, kWideQuads = 8;  // of a lane, where rows are narrow or wide
template <int kQuads>
using WidthOf = DirectNormKernel<bfloat16, bfloat16, kQuads>;  // whatever the dtype

// As many as have run on GPUs: two on two, and 2, 3, 4, 5, 6 and 8 that share one, by the course of random calls
// (heddle_fused_cases). With four, racecheck reports what docs/notes/token_weave.md tells of.
constexpr int kMostDirectRanks = 8;

// Requires takes_direct_norm_sm90(); x, y, residual and weight are aligned to 16 bytes.
template <class X, class Y>
void launch_direct(const NormRows<X, Y>& rows, int blocks, const Peers& peers, const AllReduceNormMemory& memory,
                   const AllReduceNormLaunch& launch, const Lane& lane) {
  require(is_aligned(rows.x) && is_aligned(rows.y) && is_aligned(rows.residual) && is_aligned(rows.weight),
          "all_reduce_norm: tensors are not aligned to 16 bytes");
  const DirectNormRoom room(static_cast<std::size_t>(rows.hidden), rows.x_bytes(), peers.size);
  const auto with_quads = [&]<int kQuads>(std::integral_constant<int, kQuads>) {
    launch_norm_program(DirectNormKernel<X, Y, kQuads>{rows, room}, blocks, room.bytes(), peers, memory, launch, lane);
  };
  if (rows.hidden <= WidthOf<kNarrowQuads>::kMostHidden) return with_quads(std::integral_constant<int, kNarrowQuads>{});
  with_quads(std::integral_constant<int, kWideQuads>{});
}

// Blocks wait for the same block of the others, never for one of their own rank, so they need not all be resident.
template <class X, class Y>
void launch_norm(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                 const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane) {
  with_norm_program<X, Y>(params, rows, launch.form, memory.slots_bytes, [&]<class Program>(const Program& program) {
    if constexpr (std::is_same_v<Program, DirectNorm<X, Y>>)
      return launch_direct(program.rows, launch.form.blocks, peers, memory, launch, lane);
    else if constexpr (std::is_same_v<Program, PipelinedNorm<X, Y>>)
      launch_norm_program(program, program.chunks.blocks(), 0, peers, memory, launch, lane);
    else
      launch_norm_program(program, launch.form.blocks, 0, peers, memory, launch, lane);
  });
}

}  // namespace

void fill_norm_inbox_sm90(std::byte* inbox, std::size_t bytes, Stream& stream) {
  launch_sm90("all_reduce_norm: inbox", fill_inbox, {.grid = dim3(32), .block = dim3(512), .programmatic = false},
              stream, reinterpret_cast<Packet*>(inbox), bytes / kPacketBytes);
}

bool takes_direct_norm_sm90(std::int64_t hidden, DType x, DType y, int ranks) {
  const auto row = [&](DType dtype) { return static_cast<std::size_t>(hidden) * size_of(dtype); };
  return ranks <= kMostDirectRanks && hidden <= WidthOf<kWideQuads>::kMostHidden &&
         DirectNormRoom::fits(static_cast<std::size_t>(hidden), row(x), row(y), ranks);
}

void all_reduce_norm_sm90(const AllReduceNormParams& params, const EvenShards& rows, const Peers& peers,
                          const AllReduceNormMemory& memory, const AllReduceNormLaunch& launch, const Lane& lane) {
  const auto run = [&]<class X, class Y>() { launch_norm<X, Y>(params, rows, peers, memory, launch, lane); };
  if (params.x.dtype == DType::bfloat16) return run.template operator()<bfloat16, bfloat16>();
  if (params.x.dtype == DType::float16) return run.template operator()<float16, float16>();
  with_element(params.y.dtype, [&]<class Y>() { run.template operator()<float, Y>(); });
}

}  // namespace heddle
