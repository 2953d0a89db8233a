// The strategies, by how a model is to be spread.
#pragma once

#include <functional>
#include <memory>

#include "fabric/fabric.h"
#include "kernels/attention/paged_kv.h"
#include "parallel/strategy.h"
#include "parallel/tensor_split.h"
#include "parallel/tp_mode.h"

namespace heddle {

class AllReduceNorm;
class Communicator;

// This rank's place among those that share a model.
struct ModelRank {
  int rank = 0;  // among those that divide the weights
  int ranks = 1;
  // Of these ranks, in this order, on the device of the weights; outlives the model. Null with one rank, and for a model
  // that only runs dry.
  Communicator* communicator = nullptr;
  AllReduceNorm* all_reduce_norm = nullptr;  // likewise, for the modes that use it
  TpMode mode = TpMode::standard;            // of several ranks; not automatic
  // Where not null: while it is true, this rank computes by itself, and nothing crosses ranks. For a warm-up, whose
  // results are of no use. Outlives the model.
  const bool* alone = nullptr;
  // Which part of the keys and values it has, of the ranks with the same part of the weights: rank i of them is
  // context_team[i] of the fabric, which outlives the model. Without a fabric for models that only run dry.
  KvShard shard = {};
  Ranks context_team = {};
  Fabric* fabric = nullptr;
  // Where not empty: makes of the strategy the one that the model gets, as a test does that watches what crosses it.
  std::function<std::unique_ptr<Strategy>(std::unique_ptr<Strategy>)> wrap = {};
};

// `split` is the rank's; `vocab_size` the whole model's. Throws InputError, naming it, for a mode that cannot run, and for
// context parallelism over ranks of unequal heads.
std::unique_ptr<Strategy> make_strategy(const ModelRank& place, const TensorSplit& split, std::int64_t vocab_size);

}  // namespace heddle
