#include "parallel/sequence/batch_teams.h"

#include "base/error.h"

namespace heddle {

int BatchTeams::team_of(int rank) const {
  if (on_a_machine == 1) return rank / placement.size();
  return rank % world.ranks_per_machine / placement.ranks_per_machine;
}

std::vector<int> BatchTeams::ranks_of(int team) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank)
    if (team_of(rank) == team) ranks.push_back(rank);
  return ranks;
}

BatchTeams divide_batch(const Placement& world, int batch, int halves, const char* who) {
  BatchTeams result{.world = world, .teams = halves, .placement = world, .batch = batch};
  if (halves == 1) return result;
  if (halves != 2 || batch % 2 != 0)
    throw_error<InputError>("{}: {} halves of a batch of {}, expected 2 halves of an even batch", who, halves, batch);
  const auto [machines, gpus] = world;
  if (machines % 2 != 0 && gpus % 2 != 0)
    throw_error<InputError>(
        "{}: {} machines of {} GPUs do not divide into two halves of the batch; an even number of machines or of GPUs "
        "does",
        who, machines, gpus);
  result.batch /= 2;
  if (machines % 2 == 0) {
    result.placement.machines /= 2;
  } else {
    result.placement.ranks_per_machine /= 2;
    result.on_a_machine = 2;
  }
  return result;
}

}  // namespace heddle
