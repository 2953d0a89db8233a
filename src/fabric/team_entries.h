// A list of teams in memory that several ranks share: numbers for teams, the same on every rank, though no rank waits for
// another to come.
#pragma once

#include <cstdint>
#include <span>

#include "device/peers.h"

namespace heddle {

// All zeros: empty. Written once.
struct TeamEntry {
  enum State : std::uint32_t { empty, being_written, complete };

  std::uint32_t state;
  std::uint64_t members[2];  // a bit a rank of the world

  bool has(int rank) const { return (members[rank / 64] >> (rank % 64) & 1) != 0; }
};
static_assert(kMaxPeers <= 128);

// Which entry is that of these ranks, in whatever order; who asks first enters them. Throws Failure when there are more
// teams than entries, or a rank was lost while it wrote one.
int number_of_team(std::span<TeamEntry> entries, std::span<const int> team);

// Waits for a state that another rank is about to write, some instructions from where it is. False after a second: that
// rank was killed there.
bool becomes(const std::uint32_t& state, std::uint32_t wanted);

}  // namespace heddle
