// What the forms of a pipelined call share: which rows a chunk has, and the flags that ranks raise for each other
// (norm_memory.h). Flags count the chunks of a block over all calls.
#pragma once

#include "device/low_latency.cuh"
#include "fused/all_reduce_norm/norm_chunks.h"
#include "fused/all_reduce_norm/norm_memory.h"
#include "fused/all_reduce_norm/norm_rows.cuh"

namespace heddle {

template <class X, class Y, PeerAddressing P>
struct NormCall {
  const NormRows<X, Y>& rows;
  const NormChunks& cut;
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

  HEDDLE_HOST_DEVICE std::int64_t first_token(int owner, std::uint32_t c) const {
    return rows.rows.begin(owner) + cut.first_row(block, c);
  }
  HEDDLE_HOST_DEVICE std::int64_t count(int owner, std::uint32_t c) const {
    return cut.rows(rows.rows.count(owner), block, c);
  }
  HEDDLE_HOST_DEVICE int peer_at(int step) const { return schedule::AllToAll{peers.size}.at(peers.rank, step).to; }
};

}  // namespace heddle
