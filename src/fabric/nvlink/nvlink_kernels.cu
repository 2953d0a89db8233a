#include <cuda_runtime_api.h>

#include "base/checked.h"
#include "base/cuda_call.h"
#include "device/launch_sm90.cuh"
#include "device/vector_copy.h"
#include "fabric/nvlink/nvlink_kernels.h"

namespace heddle::nvlink {
namespace {

constexpr int kCopyThreads = 512;
constexpr int kWarp = 32;

__device__ bool is_word(const void* place, std::size_t bytes) {
  return bytes == sizeof(std::uint64_t) && reinterpret_cast<std::uintptr_t>(place) % sizeof(std::uint64_t) == 0;
}

// What may be a flag that a rank polls: one relaxed store. `source` may have any alignment.
__device__ void copy_word(std::uint64_t* destination, const std::byte* source) {
  std::uint64_t word;
  if (is_word(source, sizeof(word)))
    word = atomic_load<Order::relaxed, Scope::system>(reinterpret_cast<const std::uint64_t*>(source));
  else
    memcpy(&word, source, sizeof(word));
  atomic_store<Order::relaxed, Scope::system>(destination, word);
}

// Each block takes one stretch, a whole number of the widest words of it.
__global__ void __launch_bounds__(kCopyThreads)
    copy_kernel(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (is_word(destination, bytes)) {
    if (blockIdx.x == 0 && threadIdx.x == 0) copy_word(reinterpret_cast<std::uint64_t*>(destination), source);
    return;
  }
  constexpr std::size_t kGrain = 512;
  const std::size_t each = ceil_div<std::size_t>(bytes, gridDim.x);
  const std::size_t stretch = round_up(each, kGrain);
  const std::size_t begin = stretch * blockIdx.x;
  if (begin >= bytes) return;
  const std::size_t left = bytes - begin;
  vector_copy(DeviceBlock{}, destination + begin, source + begin, left < stretch ? left : stretch);
}

__global__ void store_kernel(std::uint64_t* place, std::uint64_t value) {
  atomic_store<Order::release, Scope::system>(place, value);
}

__global__ void add_kernel(std::uint64_t* place, std::uint64_t value) {
  atomic_add<Order::release, Scope::system>(place, value);
}

__global__ void fence_kernel() {
  __threadfence_system();
}

// What it acquires is seen by the stream's later kernels and copies, as they begin after this one has ended. Whether it
// gave up is in the record.
__global__ void wait_kernel(WaitLimit limit, WaitReason reason, const std::uint64_t* flag, std::uint64_t target) {
  static_cast<void>(spin_until(limit, reason, flag, target));
}

__global__ void wait_next_kernel(WaitLimit limit, WaitReason reason, Semaphore* semaphore) {
  static_cast<void>(take_next(limit, reason, *semaphore));
}

// A thread a member. Each tells its peer, then waits for it: who has seen every count has seen all that was written
// before them.
__global__ void barrier_kernel(const __grid_constant__ BarrierBody body) {
  const std::uint64_t count = *body.entered + 1;
  __syncthreads();
  if (threadIdx.x == 0) *body.entered = count;
  const int i = static_cast<int>(threadIdx.x);
  if (i >= body.peers.size || i == body.peers.rank) return;
  const int own = body.world_ranks[body.peers.rank];
  const int other = body.world_ranks[i];
  atomic_store<Order::release, Scope::system>(body.peers.at(i, body.arrived + own), count);
  static_cast<void>(spin_until(body.peers.waits, {body.first_rank + own, body.first_rank + other, "barrier"},
                               body.arrived + other, count));
}

__global__ void probe_write_kernel(const __grid_constant__ Peers world, std::uint64_t* slots, std::uint64_t nonce) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < world.size)
    atomic_store<Order::release, Scope::system>(world.at(peer, slots + world.rank),
                                                probe_word(nonce, world.rank, peer));
}

__global__ void probe_read_kernel(const __grid_constant__ Peers world, const std::uint64_t* slots,
                                  std::uint64_t* seen) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= world.size) return;
  seen[peer] = atomic_load<Order::acquire, Scope::system>(world.at(peer, slots + world.rank));
  seen[world.size + peer] = atomic_load<Order::acquire, Scope::system>(slots + peer);
}

// Seen by the trace's clock and by the GPU's, it tells how far they are apart.
__global__ void stamp_clock(std::uint64_t* place) {
  *place = now_nanoseconds();
}

// Without PDL: the kernels above know nothing of it, so they start when all that the stream did before has ended.
template <class... Params, class... Args>
void launch(const char* op, void (*kernel)(Params...), int blocks, int threads, Stream& stream, Args&&... args) {
  launch_sm90(op, kernel,
              {.grid = dim3(static_cast<unsigned>(blocks)),
               .block = dim3(static_cast<unsigned>(threads)),
               .programmatic = false},
              stream, std::forward<Args>(args)...);
}

int whole_warps(int threads) {
  return round_up(threads, kWarp);
}

}  // namespace

void launch_copy(Stream& stream, void* destination, const void* source, std::size_t bytes, int blocks) {
  launch("nvlink: copy", copy_kernel, blocks, kCopyThreads, stream, static_cast<std::byte*>(destination),
         static_cast<const std::byte*>(source), bytes);
}

void launch_signal(Stream& stream, std::uint64_t* place, std::uint64_t value, SignalKind kind) {
  launch("nvlink: signal", kind == SignalKind::store ? store_kernel : add_kernel, 1, 1, stream, place, value);
}

void launch_fence(Stream& stream) {
  launch("nvlink: fence", fence_kernel, 1, 1, stream);
}

void launch_wait(Stream& stream, const WaitLimit& limit, const WaitReason& reason, const std::uint64_t* flag,
                 std::uint64_t target) {
  launch("nvlink: wait", wait_kernel, 1, 1, stream, limit, reason, flag, target);
}

void launch_wait_next(Stream& stream, const WaitLimit& limit, const WaitReason& reason, Semaphore* semaphore) {
  launch("nvlink: wait_next", wait_next_kernel, 1, 1, stream, limit, reason, semaphore);
}

void launch_barrier(Stream& stream, const BarrierBody& body) {
  launch("nvlink: barrier", barrier_kernel, 1, whole_warps(body.peers.size), stream, body);
}

void launch_probe_write(Stream& stream, const Peers& world, std::uint64_t* slots, std::uint64_t nonce) {
  launch("nvlink: probe", probe_write_kernel, 1, whole_warps(world.size), stream, world, slots, nonce);
}

void launch_probe_read(Stream& stream, const Peers& world, const std::uint64_t* slots, std::uint64_t* seen) {
  launch("nvlink: probe", probe_read_kernel, 1, whole_warps(world.size), stream, world, slots, seen);
}

void launch_stamp_clock(Stream& stream, std::uint64_t* place) {
  const CurrentDevice current(stream.device().index);
  launch("nvlink: clock", stamp_clock, 1, 1, stream, place);
}

void load_kernels(Device device) {
  const CurrentDevice current(device.index);
  const void* const kernels[] = {
      reinterpret_cast<const void*>(&copy_kernel),       reinterpret_cast<const void*>(&store_kernel),
      reinterpret_cast<const void*>(&add_kernel),        reinterpret_cast<const void*>(&fence_kernel),
      reinterpret_cast<const void*>(&wait_kernel),       reinterpret_cast<const void*>(&wait_next_kernel),
      reinterpret_cast<const void*>(&barrier_kernel),    reinterpret_cast<const void*>(&probe_write_kernel),
      reinterpret_cast<const void*>(&probe_read_kernel), reinterpret_cast<const void*>(&stamp_clock)};
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes{};
    if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess)
      throw_cuda_error("cannot load the fabric's kernels, which are built for sm_90a", error);
    prepare_kernel("nvlink", kernel, device);
  }
}

}  // namespace heddle::nvlink
