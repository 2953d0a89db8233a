// Steps of a model in one part and in two, timed: for figures of TokenWeave and for `heddle tune`.
#pragma once

#include <vector>

#include "cli/model_options.h"
#include "parallel/choice_tables.h"
#include "parallel/tuned_split.h"

namespace heddle {

struct MeasuredSplits {
  std::vector<SplitSample> samples;
  int granule = 0;  // tokens of the largest tile: a step of fewer than two cannot be cut
};

// Whether ranks of the model can have norms divided by token: models without experts.
bool can_shard_sums(const ModelOptions& model);

// Prompts of these lengths, each as one step, whole and in two parts by turns, `repeats` times each. Either way is summed as
// `sums` says.
MeasuredSplits measure_splits(const ModelOptions& model, const std::vector<int>& tokens, int repeats,
                              const SumTable& sums);

// The same, whole, in every form of sums that ranks of the model can have.
std::vector<SumSample> measure_sums(const ModelOptions& model, const std::vector<int>& tokens, int repeats);

}  // namespace heddle
