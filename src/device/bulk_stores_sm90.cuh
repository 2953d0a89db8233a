// TMA copies of contiguous bytes (cp.async.bulk) that leave shared memory, to this GPU's memory or a peer's, and prefetches.
// Copies to shared memory are copy_bytes() of mbarrier_sm90.cuh; groups of stores are committed and awaited by
// tensor_map_sm90.cuh. Sizes are multiples of 16, addresses are aligned to 16.
#pragma once

#include <cstdint>

namespace heddle::sm90 {

// Starts a copy. The copies that a thread starts between two commits (commit_stores()) form a group.
__device__ inline void store_bytes(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

// Starts to bring bytes from device memory into the L2 cache.
__device__ inline void prefetch_bytes(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace heddle::sm90
