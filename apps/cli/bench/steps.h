// Steps of a model with nothing around them: no scheduler, no sampling. What is timed of Heddle.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench/bench.h"
#include "engine/executor.h"
#include "weights/synthetic_values.h"

namespace heddle {

// What one sample computes: `num_steps` steps, each with `step_tokens` new tokens for each of `batch` sequences that
// have `context` tokens before the first step. All of them begin with the same random context; the tokens after it are
// random and each sequence's own.
struct StepCase {
  int batch = 1;
  int context = 0;
  int num_tokens = 1;   // of each sequence, in all steps together
  int step_tokens = 1;  // at most, in one step of one sequence

  int length() const { return context + num_tokens; }
};

// How a context comes into the cache.
enum class ContextFill {
  computed,  // by the model, from its tokens
  random     // keys and values made up, the same for all layers and sequences, in memory of their own: at once
};

// Element `dim` of the key (half 0) or value (half 1) of a head at a position is synthetic_value({kContextKey,
// 1 / kUnitDeviation}, ((half * num_kv_heads + head) * kContextPositions + position) * head_dim + dim).
inline constexpr SyntheticKey kContextKey = synthetic_key("bench", "context");
inline constexpr std::int64_t kContextPositions = std::int64_t{1} << 20;

// Tokens computed by nobody's choice: a function of the sequence and the position, never out of the vocabulary.
std::int32_t random_token(int sequence, int position, std::int64_t vocab_size);

// What the peer must compute, too: {"batch", "context", "context_tokens": [ids], "input_tokens": [[ids] of each]}.
nlohmann::json tokens_json(const StepCase& shape, std::int64_t vocab_size);

// Where a step's time goes, of 1: on the CPU by spans. Linear: products, with the gates of linear_swiglu().
struct TimeShares {
  double attention = 0;
  double linear = 0;
  double other = 0;
};

// The last tokens' logits of a sample: what is compared with a peer's.
struct StepLogits {
  bool finite = true;                // all of them, of all steps
  std::vector<std::int32_t> argmax;  // step by step, of each sequence
  std::vector<float> probes;         // of sequence 0 in the last step, of evenly spaced tokens
};

class StepRunner {
 public:
  // Where the model's weights lie, with memory for the largest of the cases. `page_size` 0: the engine's. Throws
  // Failure when there is not that much memory.
  StepRunner(std::unique_ptr<Model> model, const std::vector<StepCase>& cases, int threads, int page_size = 0);

  Device device() const { return executor_.device(); }
  int page_size() const { return executor_.kv_pages().page_size; }

  const ModelShape& shape() const { return executor_.model().shape(); }

  // Fills the caches of all sequences with the case's context; to be called before what follows.
  void prepare(const StepCase& shape, ContextFill fill = ContextFill::computed);

  // Seconds of the case's steps. May be repeated: each begins at the context's end.
  double sample();

  // The same steps, not to be timed.
  TimeShares shares();
  StepLogits logits();

  // Bytes that a step has to read on average: weights once, and the keys and values of every sequence.
  double bytes_per_step() const;

 private:
  StepPlan plan_of(int num_sequences, int first_position, int num_tokens) const;
  void compute_context();
  void make_up_context();
  void add_sequence(StepPlan& plan, int sequence, int first_position, int num_tokens) const;

  int threads_;
  int page_size_;
  int pages_per_sequence_ = 0;  // of the case
  Executor executor_;
  StepCase case_;
  std::vector<StepPlan> plans_;
};

}  // namespace heddle
