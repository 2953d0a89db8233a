// Partial attention of the blocks of a cluster put together as ClusterFusion does (Alg. 3 and 4): ClusterReduce of the
// maxima, then of what is rescaled to them.
#pragma once

#include "device/cluster/cluster_reduce.h"

namespace heddle {

// In shared memory. A record is `dim` weighted values, then the largest score, in units of log 2, and the sum of weights.
struct TreeMergeMemory {
  Vector16* records;  // [rows][record] of this block, float32
  int record_vectors;
  Vector16* maxima;  // [rows]
  int maxima_vectors;
  int rows, dim, record;
};

// All lanes of all blocks; the reducer's slots hold the records. Afterwards each block has all of attended [rows][dim], for
// its lanes once they synchronise.
template <class T, class Work, class Team, class Reducer>
HEDDLE_HOST_DEVICE void merge_by_tree(const Team& team, Reducer& reducer, const TreeMergeMemory& at, T* attended) {
  auto* const merge = reinterpret_cast<float*>(at.records);
  auto* const maxima = reinterpret_cast<float*>(at.maxima);
  const int dim = at.dim, record = at.record;
  team.sync();
  for (int row = team.lane(); row < at.maxima_vectors * 4; row += team.lanes())
    maxima[row] = row < at.rows ? merge[row * record + dim] : 0;
  team.sync();
  reducer.template reduce<float, ReduceOp::max>(at.maxima, at.maxima_vectors);
  team.sync();
  for (int row = team.lane(); row < at.rows; row += team.lanes())
    merge[row * record + dim] = Work::exp2(merge[row * record + dim] - maxima[row]);
  team.sync();
  for (int i = team.lane(); i < at.rows * (dim + 1); i += team.lanes()) {
    const int row = i / (dim + 1), d = i % (dim + 1);
    merge[row * record + d + (d == dim ? 1 : 0)] *= merge[row * record + dim];
  }
  team.sync();
  reducer.template reduce<float, ReduceOp::sum>(at.records, at.record_vectors);
  team.sync();
  for (int i = team.lane(); i < at.rows * dim; i += team.lanes()) {
    const float* const row = merge + i / dim * record;
    attended[i] = Work::rounded(row[i % dim] / row[dim + 1]);
  }
}

}  // namespace heddle
