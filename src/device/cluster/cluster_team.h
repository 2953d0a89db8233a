// A thread block as one of the blocks of a cluster. Each block has the same layout of shared memory: a place or a barrier
// of another block is named by this block's own.
#pragma once

#include <concepts>

#include "device/group.h"
#include "device/vector_copy.h"

namespace heddle {

inline constexpr int kMaxClusterRounds = 4;  // log2 of 16, the most blocks that a cluster may have

// block() is the block's rank in its cluster, blocks() the size of the cluster; lanes and sync() are those of the block.
//
// push: stores 16 bytes at block `to`'s `place`, some time later, and counts them as bytes that land at its `barrier`
// (device/mbarrier_sm90.cuh). The value is read at once. Whoever waits for the barrier sees the bytes.
//
// release: says at block `to`'s `barrier` that this block has read what its lanes have read. Every lane calls it; the
// barrier gets arrivals() arrivals.
template <class T, class Barrier>
concept ClusterTeam = Group<T> &&
    requires(const T& team, int to, Vector16* place, const Vector16& value, Barrier& barrier) {
  team.push(to, place, value, barrier);
  team.release(to, barrier);
  { team.arrivals() } -> std::same_as<int>;
};

// A team that can also push what lies in its shared memory in one piece. One lane calls push_range(); the bytes are read
// some time later. Lanes that wrote them call fence_for_bulk(), then the team synchronises, before it does.
template <class T, class Barrier>
concept BulkClusterTeam = ClusterTeam<T, Barrier> &&
    requires(const T& team, int to, Vector16* place, const Vector16* from, Barrier& barrier) {
  team.push_range(to, place, from, int{}, barrier);
  team.fence_for_bulk();
};

// A team whose blocks can meet: what each has written before, to global memory, all see afterwards. Every lane calls it.
template <class T>
concept MeetingClusterTeam = requires(const T& team) {
  team.meet();
};

}  // namespace heddle
