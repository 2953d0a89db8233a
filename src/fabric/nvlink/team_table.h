// Numbers the teams of a run, the same on every rank, without ranks waiting for each other.
#pragma once

#include <cstddef>
#include <span>

#include "fabric/fabric.h"
#include "fabric/symmetric_heap.h"
#include "fabric/team_entries.h"

namespace heddle {

// A list of teams in rank 0's heap of a fabric in host memory. The first rank that asks for a team adds it.
class TeamTable {
 public:
  static constexpr int kMostTeams = 256;  // a world of 8 has 255

  // Collective over the world of `host`, a fabric with peer addresses, which must outlive it; takes kHeapBytes.
  explicit TeamTable(Fabric& host);

  // The number, 0 .. kMostTeams - 1, of the set of these ranks in any order. Throws Failure when all are used.
  int number_of(std::span<const int> team);

  static constexpr std::size_t kHeapBytes = kMostTeams * sizeof(TeamEntry) + SymmetricHeap::kAlignment;

 private:
  TeamEntry* entries_;  // as this rank reaches rank 0's
};

}  // namespace heddle
