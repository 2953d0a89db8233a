// One-sided operations of a kernel or a CPU thread on a fabric with peer addresses (the C++ counterpart of Iris,
// "Eliminating Multi-GPU Performance Taxes", section 4). An address is always one of this rank's own heap; `peer` says
// whose memory it names.
//
// Order: `put`, `get`, `copy`, `load` and `store` are plain accesses. `signal` is a release at system scope of all that
// its group wrote before, to any peer, and `wait_until` is an acquire: a group that has seen the flag sees those bytes.
// In a kernel that is captured and replayed, values must come from memory: signal_next and wait_next keep a count
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"
#include "device/atomics.h"
#include "device/group.h"
#include "device/peers.h"
#include "device/semaphore.h"
#include "device/spin.h"
#include "device/vector_copy.h"

namespace heddle {

// The value at `local` in `peer`'s memory. T is trivially copyable.
template <PeerAddressing P, class T>
HEDDLE_HOST_DEVICE T load(const P& peers, int peer, const T* local) {
  return *peers.at(peer, local);
}

template <PeerAddressing P, class T>
HEDDLE_HOST_DEVICE void store(const P& peers, int peer, T* local, const T& value) {
  *peers.at(peer, local) = value;
}

// Copies `bytes` from own memory at `source` to `peer`'s at `destination`, 16 bytes at a time where alignment allows.
// Any size and alignment. The lanes of `group` share the work; none may rely on another's part before group.sync().
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void put(const G& group, const P& peers, int peer, void* destination, const void* source,
                            std::size_t bytes) {
  vector_copy(group, peers.at(peer, static_cast<std::byte*>(destination)), source, bytes);
}

// As `put`, from `peer`'s memory at `source` to own memory at `destination`.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void get(const G& group, const P& peers, int peer, void* destination, const void* source,
                            std::size_t bytes) {
  vector_copy(group, destination, peers.at(peer, static_cast<const std::byte*>(source)), bytes);
}

// As `put`, from `from`'s memory to `to`'s.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void copy(const G& group, const P& peers, int from, int to, void* destination, const void* source,
                             std::size_t bytes) {
  vector_copy(group, peers.at(to, static_cast<std::byte*>(destination)),
              peers.at(from, static_cast<const std::byte*>(source)), bytes);
}

// Sets `peer`'s flag after all writes of the group. Every lane must call it.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void signal(const G& group, const P& peers, int peer, std::uint64_t* flag, std::uint64_t value) {
  group.sync();
  if (group.lane() == 0) atomic_store<Order::release, Scope::system>(peers.at(peer, flag), value);
}

// As `signal`, but adds to the flag: for flags that several ranks raise.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void signal_add(const G& group, const P& peers, int peer, std::uint64_t* flag, std::uint64_t value) {
  group.sync();
  if (group.lane() == 0) atomic_add<Order::release, Scope::system>(peers.at(peer, flag), value);
}

// The reason of a wait of this rank for `from`.
template <PeerAddressing P>
HEDDLE_HOST_DEVICE WaitReason why(const P& peers, int from, Tag tag) {
  return {peers.world_rank(peers.rank), peers.world_rank(from), tag};
}

// Waits until this rank's `flag`, which `from` raises, is >= target; then every lane sees what was written before the
// signal. Every lane must call it, and all get the same result: false if this wait or another has given up (see
// WaitRecord). The caller then returns at once; its output is undefined.
template <VotingGroup G, PeerAddressing P>
[[nodiscard]] HEDDLE_HOST_DEVICE bool wait_until(const G& group, const P& peers, int from, const std::uint64_t* flag,
                                                 std::uint64_t target, Tag tag) {
  return agree(group, group.lane() != 0 || spin_until(peers.waits, why(peers, from, tag), flag, target));
}

// Adds one message to `peer`'s semaphore after all writes of the group: a release at system scope, as `signal`. Every
// lane must call it.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE void signal_next(const G& group, const P& peers, int peer, Semaphore* semaphore) {
  signal_add(group, peers, peer, &semaphore->arrived, 1);
}

// Waits for the next message at this rank's semaphore, counted over all waits on it; an acquire at system scope for all
// lanes. Every lane must call it, and all get the same result, as of wait_until.
template <VotingGroup G, PeerAddressing P>
[[nodiscard]] HEDDLE_HOST_DEVICE bool wait_next(const G& group, const P& peers, int from, Semaphore* semaphore,
                                                Tag tag) {
  return agree(group, group.lane() != 0 || take_next(peers.waits, why(peers, from, tag), *semaphore));
}

}  // namespace heddle
