// A barrier of all blocks of a launch: a counter in global memory, for launches whose blocks all run at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/kernel_waits.h"
#include "device/spin.h"

namespace heddle {

// All lanes of the block. Returns once so many blocks have come to the counter, which was zero; then each sees what the
// others wrote before. After a wait that gave up, numbers that others should have written are undefined.
template <Group G>
HEDDLE_HOST_DEVICE void grid_barrier(const G& team, std::uint64_t* counter, std::uint64_t blocks,
                                     const KernelWaits& waits) {
  team.sync();
  if (team.lane() == 0) {
    atomic_add<Order::acq_rel, Scope::gpu>(counter, 1);
    const bool met = spin_until(waits.limit, {.rank = -1, .from = team.block(), .tag = waits.tag}, counter, blocks);
    static_cast<void>(met);  // the record says it
  }
  team.sync();
}

// As the last thing that a block does with `count` counters: the last block to come clears them, and the one where it
// counts, the last of them. One lane.
template <class Count>
HEDDLE_HOST_DEVICE void reset_grid_barriers(Count* counters, int count, std::type_identity_t<Count> blocks) {
  if (atomic_add<Order::acq_rel, Scope::gpu>(counters + count - 1, 1) + 1 != blocks) return;
  for (int i = 0; i < count; ++i) atomic_store<Order::relaxed, Scope::gpu>(counters + i, 0);
}

}  // namespace heddle
