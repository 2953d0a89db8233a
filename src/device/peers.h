// What a kernel, or a thread of the CPU, needs to reach its peers: where each rank's heap lies in its own address
// space.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/host_device.h"
#include "device/wait_record.h"

namespace heddle {

// One that gives the address, on this rank, of the place in a peer's memory that corresponds to `local` in the own.
template <class P>
concept PeerAddressing = requires(const P& peers, int* local) {
  { peers.rank } -> std::convertible_to<int>;
  { peers.size } -> std::convertible_to<int>;
  { peers.at(0, local) } -> std::same_as<int*>;
  { peers.waits } -> std::convertible_to<const WaitLimit&>;
  { peers.world_rank(0) } -> std::convertible_to<int>;  // by which errors name a rank
};

inline constexpr int kMaxPeers = 72;  // the most GPUs that one NVLink domain joins

// Trivially copyable: kernels take it as a parameter. A team of fewer ranks is a Peers with fewer heaps, in the team's
// order, so whoever is handed one need not know of teams.
struct Peers {
  int rank = 0;
  int size = 1;
  WaitLimit waits;
  std::byte* heaps[kMaxPeers] = {};      // heaps[rank] is the own
  std::int8_t to_world[kMaxPeers] = {};  // what is added to a rank to name it among the world's

  HEDDLE_HOST_DEVICE int world_rank(int peer) const { return peer + to_world[peer]; }

  // Those of a part of this team, in that order. `team` holds ranks of this one, the own among them, none twice.
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

  // `local` lies in the own heap.
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
