// A list of teams in memory that ranks share. It numbers teams, the same on every rank, without ranks waiting for each
// other.
#pragma once

#include <cstdint>
#include <span>

#include "device/peers.h"

namespace heddle {

// All zeros: empty. Written once.
struct TeamEntry {
  enum State : std::uint32_t { empty, being_written, complete };

  std::uint32_t state;
  std::uint64_t members[2];  // one bit per rank of the world

  bool has(int rank) const { return (members[rank / 64] >> (rank % 64) & 1) != 0; }
};
static_assert(kMaxPeers <= 128);

// The entry of the team of these ranks, in any order; the first caller adds it. Throws Failure if there are more teams
// than entries, or if a rank was lost while it wrote one.
int number_of_team(std::span<TeamEntry> entries, std::span<const int> team);

// Waits for a state that another rank will write within a few instructions. False after a second: that rank was killed
// in between.
bool becomes(const std::uint32_t& state, std::uint32_t wanted);

}  // namespace heddle
