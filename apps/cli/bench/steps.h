// Steps of a model without scheduler and sampling: the part of Heddle that is timed.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/bench.h"
#include "engine/rank_group.h"
#include "weights/synthetic_values.h"

namespace heddle {

// The work of one sample: `num_steps` steps, each with up to `step_tokens` new tokens for each of `batch` sequences,
// which have `context` tokens before the first step. All sequences share the same random context; the tokens after it
// are random and differ between sequences.
struct StepCase {
  int batch = 1;
  int context = 0;
  int num_tokens = 1;   // per sequence, in all steps together
  int step_tokens = 1;  // at most, per sequence and step

  int length() const { return context + num_tokens; }
};

// How the context's keys and values get into the cache.
enum class ContextFill {
  computed,  // by the model, from its tokens
  random     // synthetic keys and values, equal for all layers and sequences, in separate memory: fast
};

// Element `dim` of a head of a plane (keys 0, values 1) at a position is synthetic_value({kContextKey,
// 1 / kUnitDeviation}, ((plane * num_heads + head) * kContextPositions + position) * width + dim).
inline constexpr SyntheticKey kContextKey = synthetic_key("bench", "context");
inline constexpr std::int64_t kContextPositions = std::int64_t{1} << 20;

// A pseudo-random token: a function of the sequence and the position, always within the vocabulary.
std::int32_t random_token(int sequence, int position, std::int64_t vocab_size);

// The input of a baseline: {"batch", "context", "context_tokens": [ids], "input_tokens": [[ids] of each]}.
nlohmann::json tokens_json(const StepCase& shape, std::int64_t vocab_size);

// Fractions of a step's time; on the CPU by spans. Linear: matmuls, including the gates of linear_swiglu().
struct TimeShares {
  double attention = 0;
  double linear = 0;
  double other = 0;
};

// The last tokens' logits of a sample, to compare with a baseline's.
struct StepLogits {
  bool finite = true;                // of all tokens and steps
  std::vector<std::int32_t> argmax;  // step by step, per sequence
  std::vector<float> probes;         // of sequence 0 in the last step, for evenly spaced tokens
};

// Bytes that a StepRunner of these cases takes on the device of a rank, beside the weights: of the rank that takes the most.
std::size_t bytes_of_steps(const RankModels& ranks, const std::vector<StepCase>& cases, bool fused_decode);

class StepRunner {
 public:
  // Runs on the model's device and ranks, with memory for the largest of the cases. `page_size` 0: the engine's. `split`:
  // which steps are computed in two parts; `tables`: how sums are computed. Throws Failure when memory is short.
  StepRunner(RankModels ranks, const std::vector<StepCase>& cases, int threads, int page_size = 0,
             const SplitOptions& split = {}, const ChoiceTables& tables = {});

  Device device() const { return ranks_.first().device(); }
  int page_size() const { return page_size_; }

  // Rank 0's, with the weights that a step of one token reads on all ranks.
  const ModelShape& shape() const { return shape_; }

  // Fills the caches of all sequences with the case's context; call it before the functions below.
  void prepare(const StepCase& shape, ContextFill fill = ContextFill::computed);

  // Seconds of the case's steps. May be repeated: each call begins at the end of the context.
  double sample();

  // Runs the same steps with tracing, of rank 0; do not time it.
  TimeShares shares();
  StepLogits logits();

  // Bytes that a step must read on average: weights once, of experts those that its tokens are expected to choose
  // (layers/experts.h), and the keys and values of every sequence.
  double bytes_per_step() const;

  // From now on the case's steps are computed like this. The runner was made with a split of some kind.
  void split(const SplitOptions& options);

  // Likewise, on ranks whose mode has this form of sums.
  void sum_as(SumForm form);

  // Likewise, of a runner whose tables have fused attention: how it is computed.
  void choose_decode(const DecodeChoice& choice);
  // Why the case's steps cannot be computed so. Empty: they can.
  std::string why_not_fused(const DecodeChoice& choice) const;

  // Tokens of the first part of the case's first step; 0: it is computed as a whole.
  int prefix_tokens() const { return plans_.empty() ? 0 : plans_.front().prefix_tokens; }

  // Tokens of the largest tile, of which each part of a step has one at least; 0: no step can be cut.
  int granule() const { return ranks_.first().tiles().granule(); }

 private:
  StepPlan plan_of(int num_sequences, int first_position, int num_tokens) const;
  void compute_context();
  void make_up_context();
  void add_sequence(StepPlan& plan, int sequence, int first_position, int num_tokens) const;

  int threads_;
  int page_size_;
  int pages_per_sequence_ = 0;  // for the case
  ModelShape shape_;
  RankGroup ranks_;
  StepCase case_;
  std::vector<StepPlan> plans_;
};

}  // namespace heddle
