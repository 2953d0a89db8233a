// Random delays inside a protocol. Code over (Group, PeerAddressing) takes these types in place of the product's, so the
// tests run the product's source, and the product has no hook. Delays come
//   - before each access of a peer's memory: a packet, a chunk, a flag (LatePeers::at);
//   - before each wait, which asks for the ranks that its error would name (LatePeers::world_rank);
//   - before and after each meeting of the group (Late::sync, Late::all).
#pragma once

#include <thread>

#include "conformance/replay.h"
#include "device/one_sided.h"

namespace heddle::conformance {

// One lane's sequence of delays, a function of the seed: most are none, one in sixteen is up to `most_nanoseconds` long.
class Jitter {
 public:
  HEDDLE_HOST_DEVICE Jitter(std::uint64_t seed, std::uint64_t most_nanoseconds)
      : state_(seed), most_(most_nanoseconds) {}

  HEDDLE_HOST_DEVICE void operator()() const {
    state_ = mixed(state_);
    if (state_ % 16 == 0) spin((state_ >> 8) % most_);
  }

  HEDDLE_HOST_DEVICE static void spin(std::uint64_t nanoseconds) {
    for (const std::uint64_t start = now_nanoseconds(); now_nanoseconds() - start < nanoseconds;) {
#ifndef __CUDA_ARCH__
      std::this_thread::yield();  // the ranks may have fewer cores than threads
#endif
    }
  }

 private:
  mutable std::uint64_t state_;
  std::uint64_t most_;
};

class LatePeers {
 public:
  HEDDLE_HOST_DEVICE LatePeers(const Peers& peers, const Jitter& jitter)
      : rank(peers.rank), size(peers.size), waits(peers.waits), peers_(peers), jitter_(jitter) {}

  template <class T>
  HEDDLE_HOST_DEVICE T* at(int peer, T* local) const {
    jitter_();
    return peers_.at(peer, local);
  }
  HEDDLE_HOST_DEVICE int world_rank(int peer) const {
    jitter_();
    return peers_.world_rank(peer);
  }

  const int rank, size;
  const WaitLimit& waits;

 private:
  const Peers& peers_;
  const Jitter& jitter_;
};
static_assert(PeerAddressing<LatePeers>);

template <VotingGroup G>
struct Late : G {
  const Jitter& jitter;

  HEDDLE_HOST_DEVICE void sync() const {
    jitter();
    G::sync();
    jitter();
  }
  HEDDLE_HOST_DEVICE bool all(bool vote) const {
    jitter();
    const bool every = G::all(vote);
    jitter();
    return every;
  }
};
static_assert(VotingGroup<Late<HostThread>>);

// protocol(group, peers) with delays that differ by `seed`, run, block and lane. Some blocks also begin late.
template <Group G, class Protocol>
HEDDLE_HOST_DEVICE void run_late(const G& group, const Peers& peers, std::uint64_t run, std::uint64_t seed,
                                 const Protocol& protocol) {
  constexpr std::uint64_t kLongestStart = 20'000, kLongest = 2'000;
  const std::uint64_t of_block = mixed(mixed(seed + static_cast<std::uint64_t>(group.block())) ^ run);
  if (of_block % 4 == 0) Jitter::spin((of_block >> 8) % kLongestStart);
  const Jitter jitter(of_block + static_cast<std::uint64_t>(group.lane()), kLongest);
  protocol(Late<G>{group, jitter}, LatePeers(peers, jitter));
}

}  // namespace heddle::conformance
