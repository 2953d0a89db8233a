// TMA copies of rows of bytes (cp.async.bulk) from shared memory to global memory, this GPU's or a peer's. Those to shared
// memory are copy_bytes() of device/mbarrier_sm90.cuh. Sizes are multiples of 16, addresses are aligned to 16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::sm90 {

// Starts a copy. The copies that a thread starts between two commits (commit_stores() of tensor_map_sm90.cuh) form a group.
__device__ inline void store_bytes(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

// Waits until all but the thread's last kPending groups have read shared memory, which may then be written again.
template <int kPending>
__device__ inline void wait_until_stores_have_read_but() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all but the thread's last kPending groups have written: a release by the thread then covers what they wrote.
template <int kPending>
__device__ inline void wait_for_stores_but() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Starts to bring bytes from device memory into the L2 cache.
__device__ inline void prefetch_bytes(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace heddle::sm90
