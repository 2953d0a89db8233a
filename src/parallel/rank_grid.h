// The ranks of a model as a grid: neighbours divide the weights (tensor parallelism), and ranks with the same part of the
// weights divide the keys and values (context parallelism).
#pragma once

#include "fabric/fabric.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct RankGrid {
  int tensor_ranks = 1;
  int context_ranks = 1;

  int size() const { return tensor_ranks * context_ranks; }
  int tensor_rank(int rank) const { return rank % tensor_ranks; }
  KvShard shard(int rank) const { return {.rank = rank / tensor_ranks, .ranks = context_ranks}; }

  // The ranks among which this one's sums of matrices cross, in order, and those among which attention's do.
  Ranks tensor_team(int rank) const {
    Ranks team;
    for (int i = 0; i < tensor_ranks; ++i) team.push_back(rank - tensor_rank(rank) + i);
    return team;
  }
  Ranks context_team(int rank) const {
    Ranks team;
    for (int i = 0; i < context_ranks; ++i) team.push_back(tensor_rank(rank) + i * tensor_ranks);
    return team;
  }
};

}  // namespace heddle
