// The sizes of an executor's steps, and the memory that they take. The memory is measured by dry runs (kernels/dry_run.h):
// no code computes it a second time.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/symmetric_step_bytes.h"
#include "kernels/dry_run.h"
#include "kernels/sampling/sample.h"
#include "models/model.h"
#include "parallel/split_rule.h"
#include "step/arena.h"
#include "step/kv_pages.h"
#include "step/step_plan.h"

namespace heddle {

struct ExecutorLimits {
  StepLimits step;
  int page_size = 32;  // tokens; of all ranks, where they divide the keys and values by position
  int num_pages = 1;
  int num_sms = 0;          // of a GPU, that a step may hold at a time, for others run beside it; 0: all
  SplitOptions split = {};  // which steps are in two parts; any where step.max_parts is 2 and this says none
};

// The cache that an executor makes, without its memory.
KvPages cache_shape(const Model& model, const ExecutorLimits& limits);

// The sequences with which a GPU computes a decode step of `num_sequences`: it has a graph for each of few sizes, and
// fills a step up; graph_batch() leaves out that the limits may have no room for the sequences that are added.
int graph_batch(int num_sequences);
int decode_batch(int num_sequences, const ExecutorLimits& limits);

// What the host hands over with a step.
struct StepInputBytes {
  std::size_t arrays = 0;     // placed_bytes(limits.step)
  std::size_t samples = 0;    // a SampleRow for each sample
  std::size_t histories = 0;  // a HistoryToken for each token of all samples' histories
};
StepInputBytes input_bytes(const Model& model, const ExecutorLimits& limits);

// Where a GPU reads it. On the CPU null: a step is read where the host has written it.
struct StepInputs {
  std::byte* arrays = nullptr;
  SampleRow* samples = nullptr;
  HistoryToken* histories = nullptr;
};

// Takes them from an arena; the model's tensors come behind them.
StepInputs take_inputs(const Model& model, const ExecutorLimits& limits, Arena& arena);

// What a step consists of.
struct DryStep {
  std::size_t arena_bytes = 0;  // inputs and the model's tensors
  SymmetricStepBytes symmetric;
  std::vector<OperatorCall> calls;  // of the model, in order
};

// Of a step of this shape; `model` may be an outline of a model on a GPU that is not there. Throws InvalidArgument when
// an operator does not take the model's shapes or dtypes.
DryStep run_dry(Model& model, const ExecutorLimits& limits, const StepShape& shape);

// Every size of a graph, and the largest steps of each other mode: chunks of one prompt and of many sequences, with
// logits of no row, of some rows, and of all. All of them whole, with the default choices.
std::vector<StepShape> largest_shapes(const ExecutorLimits& limits);

// These in every way in which rank 0 may have them computed: with sums by one operator and by themselves, and, where the
// limits allow two parts, cut behind the first token, in the middle and before the last one. (The algorithm of a sum takes
// nothing of the arena.)
std::vector<StepShape> shapes_in_every_way(const ExecutorLimits& limits);

// What the GEMMs of the first layer make of the tokens of a step, on the lane that has them while a step is in two parts.
// Those of experts are left out: their rows depend on the tokens. Asks cuBLASLt on a GPU.
LayerTiles layer_tiles(Model& model, const ExecutorLimits& limits, const Lane& lane);

// The arena that every step within the limits fits into: the most that run_dry() finds of shapes_in_every_way().
std::size_t step_bytes(Model& model, const ExecutorLimits& limits);

// Likewise of symmetric memory. Ranks agree on the most before their fabric is made (RankWorld).
SymmetricStepBytes symmetric_step_bytes(Model& model, const ExecutorLimits& limits);

}  // namespace heddle
