// Barriers of the threads of a block: mbarriers in shared memory, which also count bytes of TMA copies, and named
// barriers.
#pragma once

#include <cstdint>

#include "device/wait_deadline_sm90.cuh"

namespace heddle::sm90 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Whose stores the end of a phase makes visible: those of this block's threads and of TMA, whichever block issued it;
// or also those of other blocks of the cluster.
enum class Writers : std::uint8_t { block, cluster };

// An mbarrier. Its phases alternate; a wait names the parity of the phase that is to end, 0 for the first one. A phase
// ends when as many threads have arrived as init() says and all bytes of TMA that they announced have landed. Bytes may
// land before they are announced, as long as that is before the phase's last arrival.
class Mbarrier {
 public:
  // Where TMA, and other blocks of the cluster by way of address_in_block(), find it.
  __device__ std::uint32_t address() const { return shared_address(&state_); }

  // Once, by one thread; publish_barriers() comes after it.
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }

  // Release at the scope of the block.
  __device__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory"); }

  // Arrives, and makes the phase also wait for `bytes` of TMA copies.
  __device__ void arrive_expecting(std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }

  // Acquire, at the scope that `writers` names. False when it gave up; wait_deadline_sm90.cuh says which callers may
  // ignore that. The report says that it expected this parity and observed the other.
  template <class HowLong = WaitDeadline, Writers writers = Writers::block>
  __device__ bool wait(const KernelWaits& waits, int parity) const {
    const auto phase = static_cast<std::uint64_t>(parity);
    return spin_until<HowLong>(waits, phase, phase ^ 1, [&] { return phase_has_ended<writers>(parity); });
  }

  // Whether the phase of that parity has ended; acquire if so. Does not wait.
  __device__ bool has_ended(int parity) const {
    std::uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }

 private:
  // May suspend the thread for a short while.
  template <Writers writers>
  __device__ bool phase_has_ended(int parity) const {
    std::uint32_t done;
    if constexpr (writers == Writers::cluster)
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address()), "r"(parity)
          : "memory");
    else
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address()), "r"(parity)
          : "memory");
    return done != 0;
  }

  std::uint64_t state_;
};

// Call after the last init() of a block; then the block synchronises before any thread uses an mbarrier.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives at an mbarrier of any block of the cluster, at an address from address_in_block(), after the wgmmas that read
// a slot have completed, so that TMA may write the slot. It does not make writes of threads visible there: that takes
// release_in_block(), which fences all memory.
__device__ inline void arrive_in_block(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same with release semantics at the scope of the cluster.
__device__ inline void release_in_block(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
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
