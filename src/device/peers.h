// How a kernel or a CPU thread reaches its peers: the address of each rank's heap in this rank's address space.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/host_device.h"
#include "device/wait_record.h"

namespace heddle {

// Maps `local`, an address in this rank's heap, to this rank's address of the same place in a peer's heap.
template <class P>
concept PeerAddressing = requires(const P& peers, int* local) {
  { peers.rank } -> std::convertible_to<int>;
  { peers.size } -> std::convertible_to<int>;
  { peers.at(0, local) } -> std::same_as<int*>;
  { peers.waits } -> std::convertible_to<const WaitLimit&>;
  { peers.world_rank(0) } -> std::convertible_to<int>;  // by which errors name a rank
};

inline constexpr int kMaxPeers = 72;  // the most GPUs that one NVLink domain joins

// Trivially copyable: kernels take it as a parameter. A smaller team is a Peers with fewer heaps, in the team's order,
// so code that uses one need not know of teams.
struct Peers {
  int rank = 0;
  int size = 1;
  WaitLimit waits;
  std::byte* heaps[kMaxPeers] = {};      // heaps[rank] is this rank's own
  std::int8_t to_world[kMaxPeers] = {};  // added to a rank, gives its rank in the world

  HEDDLE_HOST_DEVICE int world_rank(int peer) const { return peer + to_world[peer]; }

  // The peers of a part of this team, in that order. `team` holds distinct ranks of this team, the own among them.
  Peers of(std::span<const int> team) const {
    Peers part{.size = static_cast<int>(team.size()), .waits = waits};
    for (std::size_t i = 0; i < team.size(); ++i) {
      const int index = static_cast<int>(i);
      if (team[i] == rank) part.rank = index;
      part.heaps[i] = heaps[team[i]];
      part.to_world[i] = static_cast<std::int8_t>(world_rank(team[i]) - index);
    }
    return part;
  }

  // `local` lies in this rank's heap.
  template <class T>
  HEDDLE_HOST_DEVICE T* at(int peer, T* local) const {
    const auto offset = reinterpret_cast<const std::byte*>(local) - heaps[rank];
    if constexpr (std::is_const_v<T>)
      return reinterpret_cast<T*>(static_cast<const std::byte*>(heaps[peer] + offset));
    else
      return reinterpret_cast<T*>(heaps[peer] + offset);
  }
};
static_assert(PeerAddressing<Peers>);

}  // namespace heddle
