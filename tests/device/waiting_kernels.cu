#include "waiting_kernels.h"

#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernel

__global__ void wait_at_barrier(const __grid_constant__ KernelWaits waits, PhaseEnds ends, WaitKind kind, int* seen) {
  __shared__ Mbarrier barrier;
  let_later_kernels_start();
  if (threadIdx.x == 0) {
    barrier.init(1);
    publish_barriers();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  if (threadIdx.x == kWaitingThreads) {  // of a warp of its own
    if (ends == PhaseEnds::late)
      for (const std::uint64_t from = now_nanoseconds(); now_nanoseconds() - from < 50'000'000;) __nanosleep(1000);
    if (ends != PhaseEnds::never) barrier.arrive();
  }
  if (threadIdx.x >= kWaitingThreads) return;
  bool ended = kind == WaitKind::long_deadline ? barrier.wait<LongWaitDeadline>(waits, 0) : barrier.wait(waits, 0);
  if (kind == WaitKind::deadlines_in_a_row)
    for (int wait = 1; wait < kWaitsInARow; ++wait) ended = barrier.wait(waits, 0) && ended;
  seen[blockIdx.x * kWaitingThreads + threadIdx.x] = ended ? 1 : 2;
}

}  // namespace

void enqueue_wait(PhaseEnds ends, WaitKind kind, const KernelWaits& waits, int* seen, Stream& stream) {
  launch_sm90("test", wait_at_barrier, {.grid = dim3(kWaitingBlocks), .block = dim3(kWaitingThreads + 32)}, stream,
              waits, ends, kind, seen);
}

}  // namespace heddle
