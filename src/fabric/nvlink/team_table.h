// Numbers for the teams of a run, the same on every rank without a rank waiting for another.
#pragma once

#include <cstddef>
#include <span>

#include "fabric/fabric.h"
#include "fabric/symmetric_heap.h"
#include "fabric/team_entries.h"

namespace heddle {

// A list of teams in rank 0's part of a fabric in host memory; whoever first asks for a team enters it.
class TeamTable {
 public:
  static constexpr int kMostTeams = 256;  // a world of 8 has 255

  // Collective over the world of `host`, a fabric with peer addresses, which must outlive it; takes kHeapBytes.
  explicit TeamTable(Fabric& host);

  // 0 .. kMostTeams - 1; of the set of these ranks, in whatever order. Throws Failure when there are no more.
  int number_of(std::span<const int> team);

  static constexpr std::size_t kHeapBytes = kMostTeams * sizeof(TeamEntry) + SymmetricHeap::kAlignment;

 private:
  TeamEntry* entries_;  // as this rank reaches rank 0's
};

}  // namespace heddle
