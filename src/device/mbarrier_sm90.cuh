// Barriers of the threads of a block: mbarriers in shared memory, which also count bytes of TMA copies, and named
// barriers.
#pragma once

#include <cstdint>

#include "device/patience_sm90.cuh"

namespace heddle::sm90 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// mbarriers. Their phases alternate; a wait names the parity of the phase that is to end.
__device__ inline void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Call after the last init_barrier of a block; then the block synchronises before any thread uses an mbarrier.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at a barrier of any block of the cluster, at an address from address_in_block(), after the wgmmas that read a
// slot have completed, so that TMA may write the slot. It does not make writes of threads visible there: that would
// take a fence of all memory (`.release.cluster`).
__device__ inline void arrive_in_block(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and makes the phase also wait for `bytes` of TMA copies.
__device__ inline void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Whose stores the end of a phase makes visible: those of this block's threads and of TMA, whichever block issued it;
// or also those of other blocks of the cluster.
enum class Writers : std::uint8_t { block, cluster };

// Whether the phase has ended. May suspend the thread for a short while.
template <Writers writers>
__device__ inline bool phase_has_ended(std::uint32_t barrier, int parity) {
  std::uint32_t done;
  if constexpr (writers == Writers::cluster)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  return done != 0;
}

// False when it gave up; patience_sm90.cuh says which callers may ignore that. The report says that it expected this
// parity and observed the other.
template <Writers writers = Writers::block, class HowLong = Patience>
__device__ inline bool wait_for_phase(const KernelWaits& waits, std::uint32_t barrier, int parity) {
  const auto phase = static_cast<std::uint64_t>(parity);
  return spin_until<HowLong>(waits, phase, phase ^ 1, [&] { return phase_has_ended<writers>(barrier, parity); });
}

// TMA copy to shared memory of `bytes`, a multiple of 16 between addresses aligned to 16. Completes on `barrier`.
__device__ inline void copy_bytes(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Named barrier `id`, 1 to 15, of `num_threads` threads, which are whole warps.
__device__ inline void sync_threads(int id, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

// Arrives at it without waiting.
__device__ inline void arrive_at_threads(int id, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

}  // namespace heddle::sm90
