// A thread block of a cluster on sm_90a: its team (cluster_team.h) over distributed shared memory, its barrier, and the
// instructions behind both.
#pragma once

#include <cstdint>

#include "device/cluster/cluster_team.h"
#include "device/mbarrier_sm90.cuh"

namespace heddle::sm90 {

// A cluster barrier. After it, all blocks of the cluster have started and may use each other's published barriers. It
// makes no other writes visible (that would take a full memory fence), and does not wait for threads that have exited.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ inline int rank_in_cluster() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline int blocks_of_cluster() {
  int blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// The cluster address of what block `rank` has at `address` of its own shared memory.
__device__ inline std::uint32_t address_in_block(std::uint32_t address, int rank) {
  std::uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Asynchronous stores to another block of the cluster. `to` and `barrier` are addresses of address_in_block(); the
// stored bytes count as transaction bytes of `barrier`.
__device__ inline void push_words(std::uint32_t to, uint4 v, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
               : "memory");
}
__device__ inline void push_four(std::uint32_t to, float4 v, std::uint32_t barrier) {
  push_words(to, make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)),
             barrier);
}
__device__ inline void push_two(std::uint32_t to, float2 v, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)), "r"(barrier)
               : "memory");
}

// The same for any multiple of 16 bytes of this block's shared memory, between addresses aligned to 16, by the bulk copy
// engine. It reads `from` later, in the async proxy.
__device__ inline void push_bulk(std::uint32_t to, std::uint32_t from, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// 16 bytes of another block's shared memory, at every call anew; `from` is an address of address_in_block().
__device__ inline uint4 load_from_block(std::uint32_t from) {
  uint4 v;
  asm volatile("ld.relaxed.cluster.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

// The barrier of ClusterReducer and ClusterGatherer: its waits acquire what other blocks of the cluster have written.
class ClusterMbarrier {
 public:
  __device__ std::uint32_t address() const { return barrier_.address(); }
  __device__ void init(int arrivals) { barrier_.init(arrivals); }
  __device__ void arrive_expecting(std::uint32_t bytes) { barrier_.arrive_expecting(bytes); }
  __device__ bool wait(const KernelWaits& waits, int parity) const {
    return barrier_.wait<WaitDeadline, Writers::cluster>(waits, parity);
  }

 private:
  Mbarrier barrier_;
};

// All threads of a block, whole warps, of a one-dimensional cluster. Shared memory is dynamic or static; push(), release()
// and fence_for_bulk() take addresses in this block's own.
class ClusterBlock {
 public:
  __device__ ClusterBlock() : rank_(rank_in_cluster()), blocks_(blocks_of_cluster()) {}

  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ int lanes() const { return static_cast<int>(blockDim.x); }
  __device__ int block() const { return rank_; }
  __device__ int blocks() const { return blocks_; }
  __device__ void sync() const { __syncthreads(); }

  __device__ void push(int to, Vector16* place, const Vector16& value, ClusterMbarrier& barrier) const {
    push_words(address_in_block(shared_address(place), to),
               make_uint4(value.words[0], value.words[1], value.words[2], value.words[3]),
               address_in_block(barrier.address(), to));
  }
  __device__ void push_range(int to, Vector16* place, const Vector16* from, int count, ClusterMbarrier& barrier) const {
    push_bulk(address_in_block(shared_address(place), to), shared_address(from),
              static_cast<std::uint32_t>(count) * std::uint32_t{sizeof(Vector16)},
              address_in_block(barrier.address(), to));
  }
  __device__ void fence_for_bulk() const { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

  // A warp at a time.
  __device__ int arrivals() const { return lanes() / 32; }
  __device__ void release(int to, ClusterMbarrier& barrier) const {
    __syncwarp();
    if (lane() % 32 == 0) release_in_block(address_in_block(barrier.address(), to));
  }

  // Releases and acquires at the scope of the cluster, other than meet_cluster().
  __device__ void meet() const {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  }

 private:
  int rank_, blocks_;
};
static_assert(BulkClusterTeam<ClusterBlock, ClusterMbarrier> && MeetingClusterTeam<ClusterBlock>);

// All threads of all blocks, once their barriers are initialised and published, and before a block ends while others may
// still push to it.
__device__ inline void meet_cluster() {
  __syncthreads();
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace heddle::sm90
