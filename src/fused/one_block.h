// A cluster of one block, which has nobody to talk to: how a pool of threads computes what clusters do on a GPU, because
// other blocks would have to make progress, which a pool's pieces need not.
#pragma once

#include <cstdint>

#include "device/cluster/cluster_team.h"
#include "device/kernel_waits.h"

namespace heddle {

class OneBlock : public HostThread {
 public:
  struct Barrier {
    void init(int) {}
    void arrive_expecting(std::uint32_t) {}
    bool wait(const KernelWaits&, int) const { return true; }
  };
  int arrivals() const { return 1; }
  void push(int, Vector16*, const Vector16&, Barrier&) const {}
  void release(int, Barrier&) const {}
};
static_assert(ClusterTeam<OneBlock, OneBlock::Barrier>);

}  // namespace heddle
