// What the forms of a pipelined call share: the flags that ranks raise for each other (norm_memory.h), and which rows a
// chunk has. Flags count the chunks of a block over all calls.
#pragma once

#include "device/low_latency.cuh"
#include "fused/all_reduce_norm/norm_chunks.h"
#include "fused/all_reduce_norm/norm_memory.h"
#include "fused/all_reduce_norm/norm_rows.cuh"

namespace heddle {

template <PeerAddressing P>
struct NormFlags {
  const P& peers;
  const AllReduceNormMemory& memory;
  int block;
  std::uint64_t before;  // chunks of this block in all calls before

  HEDDLE_HOST_DEVICE std::uint64_t* flag(std::uint64_t* flags, int from) const {
    return flags + block * peers.size + from;
  }
  HEDDLE_HOST_DEVICE void tell(int peer, std::uint64_t* flags, std::uint32_t count) const {
    atomic_store<Order::release, Scope::system>(peers.at(peer, flag(flags, peers.rank)), before + count);
  }
  HEDDLE_HOST_DEVICE WaitReason reason(int from, const std::uint64_t* flags) const {
    const Tag tag = flags == memory.shares_come ? Tag("norm: share")
                    : flags == memory.rows_come ? Tag("norm: row")
                                                : Tag("norm: slot");
    return why(peers, from, tag);
  }
  [[nodiscard]] HEDDLE_HOST_DEVICE bool wait(int from, std::uint64_t* flags, std::uint32_t count) const {
    return spin_until(peers.waits, reason(from, flags), flag(flags, from), before + count);
  }
  HEDDLE_HOST_DEVICE int peer_at(int step) const { return schedule::AllToAll{peers.size}.at(peers.rank, step).to; }

  // By one lane: all peers.
  HEDDLE_HOST_DEVICE void tell_all(std::uint64_t* flags, std::uint32_t count) const {
    for (int step = 1; step < peers.size; ++step) tell(peer_at(step), flags, count);
  }
  [[nodiscard]] HEDDLE_HOST_DEVICE bool wait_for_all(std::uint64_t* flags, std::uint32_t count) const {
    for (int p = 0; p < peers.size; ++p)
      if (p != peers.rank && !wait(p, flags, count)) return false;
    return true;
  }

#ifdef __CUDACC__
  // By the lanes of a warp, one for each peer.
  __device__ void warp_tells(std::uint64_t* flags, std::uint32_t count) const {
    for (int p = static_cast<int>(threadIdx.x % 32); p < peers.size; p += 32)
      if (p != peers.rank) tell(p, flags, count);
  }
  [[nodiscard]] __device__ bool warp_waits(std::uint64_t* flags, std::uint32_t count) const {
    bool all = true;
    for (int p = static_cast<int>(threadIdx.x % 32); p < peers.size; p += 32)
      if (p != peers.rank) all = all && wait(p, flags, count);
    return __all_sync(~0u, all) != 0;
  }
#endif
};

template <class X, class Y, PeerAddressing P>
struct NormCall : NormFlags<P> {
  using NormFlags<P>::block;

  const NormRows<X, Y>& rows;
  const NormChunks& cut;

  HEDDLE_HOST_DEVICE std::int64_t first_token(int owner, std::uint32_t c) const {
    return rows.rows.begin(owner) + cut.first_row(block, c);
  }
  HEDDLE_HOST_DEVICE std::int64_t count(int owner, std::uint32_t c) const {
    return cut.rows(rows.rows.count(owner), block, c);
  }
};

}  // namespace heddle
