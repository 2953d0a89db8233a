// How the ranks of a run divide a batch. With CFG parallelism each half of it has a team of its own, and every team
// carries out the strategy on its half, beside the other.
#pragma once

#include <vector>

#include "fabric/placement.h"

namespace heddle {

struct BatchTeams {
  Placement world;
  int teams = 1;

  // Of one team.
  Placement placement;
  int batch = 1;
  int on_a_machine = 1;  // teams that share each machine, and its links

  // World ranks of a team, in the order of the team's ranks.
  std::vector<int> ranks_of(int team) const;
  int team_of(int rank) const;
};

// With two halves each has half of the machines; of an odd number of machines, half of the ranks of each. Throws
// InputError, naming `who`, when `halves` is not 1 or 2, when the batch is odd, and when the ranks do not divide so.
BatchTeams divide_batch(const Placement& world, int batch, int halves, const char* who);

}  // namespace heddle
