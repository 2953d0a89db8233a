// The twins of ClusterGather and one-step ClusterReduce that go through global memory, which here is the L2 cache: what
// blocks would do without distributed shared memory. In both a block writes its data once and the others read them.
//
//   by packets  16 bytes hold 8 bytes of data and the call's number twice, as NCCL's LL protocol: nobody waits for a flag,
//               but twice the bytes move
//   by flags    a block writes, then raises its flag (release); the others wait for it (acquire), then read
//
// Two buffers take turns, for the reason that cluster_gather.h gives.
#pragma once

#include <cstdint>

#include "device/cluster/cluster_sm90.cuh"
#include "device/cluster/combine.h"
#include "device/wait_deadline_sm90.cuh"

namespace heddle::sm90 {

// Global memory of one cluster, zeroed once, before its first call.
struct OffChipMemory {
  Vector16* segments;    // [2][blocks][segment_vectors], by flags; [2][blocks][2 * segment_vectors], by packets
  std::uint32_t* flags;  // [blocks * kFlagStride], by flags
  static constexpr int kFlagStride = 32;
};

// One thread's part, as ClusterGatherer's. `first_call` counts the calls before, over all launches.
class OffChipGatherer {
 public:
  __device__ OffChipGatherer(const ClusterBlock& team, OffChipMemory memory, int segment_vectors,
                             std::uint32_t first_call, const KernelWaits& waits)
      : team_(team), memory_(memory), segment_vectors_(segment_vectors), calls_(first_call), waits_(waits) {}

  // use(owner, i, vector) for every vector i = lane, lane + lanes, ... < count of every block's data, owner by owner in
  // order for each i. The block's own come from `data`.
  template <class Use>
  __device__ void by_packets(const Vector16* data, int count, Use&& use) {
    const std::uint32_t epoch = ++calls_;
    Vector16* const of_turn = memory_.segments + epoch % 2 * team_.blocks() * 2 * segment_vectors_;
    for (int i = team_.lane(); i < count; i += team_.lanes()) {
      Vector16* const mine = of_turn + 2 * (team_.block() * segment_vectors_ + i);
      const Vector16 v = data[i];
      store_packet(mine, v.words[0], v.words[1], epoch);
      store_packet(mine + 1, v.words[2], v.words[3], epoch);
    }
    for (int i = team_.lane(); i < count; i += team_.lanes()) {
      const Vector16 mine = data[i];
      for (int first = 0; first < team_.blocks(); first += kAtOnce) {
        uint4 low[kAtOnce], high[kAtOnce];
        spin_until(waits_, epoch, 0, [&] {
          bool here = true;
#pragma unroll
          for (int n = 0; n < kAtOnce; ++n) {
            const Vector16* const from = of_turn + 2 * (min(first + n, team_.blocks() - 1) * segment_vectors_ + i);
            low[n] = load(from), high[n] = load(from + 1);
          }
#pragma unroll
          for (int n = 0; n < kAtOnce; ++n)
            here = here && low[n].y == epoch && low[n].w == epoch && high[n].y == epoch && high[n].w == epoch;
          return here;
        });
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
          if (first + n < team_.blocks())
            use(first + n, i, first + n == team_.block() ? mine : Vector16{{low[n].x, low[n].z, high[n].x, high[n].z}});
      }
    }
    team_.sync();  // the block's lanes are at the same call
  }

  template <class Use>
  __device__ void by_flags(const Vector16* data, int count, Use&& use) {
    const std::uint32_t epoch = ++calls_;
    Vector16* const of_turn = memory_.segments + epoch % 2 * team_.blocks() * segment_vectors_;
    for (int i = team_.lane(); i < count; i += team_.lanes()) of_turn[team_.block() * segment_vectors_ + i] = data[i];
    team_.sync();
    if (team_.lane() == 0)
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag(team_.block())), "r"(epoch) : "memory");
    if (team_.lane() < team_.blocks())
      spin_until(waits_, epoch, 0, [&] {
        std::uint32_t seen;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag(team_.lane())) : "memory");
        return static_cast<std::int32_t>(seen - epoch) >= 0;  // a fast block may be one call ahead
      });
    team_.sync();
    for (int i = team_.lane(); i < count; i += team_.lanes())
      for (int first = 0; first < team_.blocks(); first += kAtOnce) {
        uint4 v[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
          v[n] = load(of_turn + min(first + n, team_.blocks() - 1) * segment_vectors_ + i);
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n)
          if (first + n < team_.blocks()) use(first + n, i, Vector16{{v[n].x, v[n].y, v[n].z, v[n].w}});
      }
  }

 private:
  static constexpr int kAtOnce = 4;  // blocks whose loads are in flight together

  __device__ std::uint32_t* flag(int block) const {
    return memory_.flags + block * OffChipMemory::kFlagStride;
  }
  static __device__ void store_packet(Vector16* to, std::uint32_t a, std::uint32_t b, std::uint32_t epoch) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(a), "r"(epoch), "r"(b)
                 : "memory");
  }
  static __device__ uint4 load(const Vector16* from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
  }

  const ClusterBlock& team_;
  OffChipMemory memory_;
  int segment_vectors_;
  std::uint32_t calls_;
  const KernelWaits& waits_;
};

// data [count] of this block becomes the sum or maximum of all blocks', in the order of the blocks, as
// ClusterGatherer::reduce_directly().
template <class T, ReduceOp kOp>
class OffChipSum {
 public:
  __device__ OffChipSum(Vector16* data, int blocks) : data_(data), last_(blocks - 1) {}

  // To be passed to a gather of the same data.
  __device__ void operator()(int owner, int i, const Vector16& v) {
    if (owner == 0)
      numbers_ = Numbers<T>(v);
    else
      numbers_.template combine<kOp>(v);
    if (owner == last_) data_[i] = numbers_.vector();
  }

 private:
  Vector16* data_;
  int last_;
  Numbers<T> numbers_{Vector16{}};
};

}  // namespace heddle::sm90
