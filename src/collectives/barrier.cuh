// The barrier of a team with peer addresses: one flag a pair of ranks.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

struct FlagBarrier {
  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    auto barrier = barrier_of(group, peers, memory, "barrier");
    static_cast<void>(barrier());
  }
};

}  // namespace heddle
