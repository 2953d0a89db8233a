// The executors of a model's ranks. Rank 0's belongs to the caller, who plans and samples; each other rank has a thread,
// which takes the same steps from a StepChannel, or a process, which takes them from a ControlLine.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "engine/decode_chooser.h"
#include "engine/executor.h"
#include "engine/rank_models.h"
#include "engine/step_channel.h"
#include "parallel/choice_tables.h"

namespace heddle {

class RankGroup {
 public:
  // Each rank makes its executor; `threads` of the CPU are divided among those of this process, at least one each. Throws as Executor does,
  // naming the rank where there are several, and Failure when the system cannot start a thread.
  // `tables`: what rank 0 chooses by.
  RankGroup(RankModels ranks, const ExecutorLimits& limits, int threads, ChoiceTables tables = {});
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();  // waits for steps that are under way, on all ranks

  int size() const { return static_cast<int>(ranks_.size()); }
  Executor& first() { return *executor_; }  // rank 0's
  const Executor& first() const { return *executor_; }

  // Chooses what the plan leaves open (StepPlan::prefix_tokens, StepChoices), by rank 0's tables. start() takes plans as
  // they are.
  void choose(StepPlan& plan) const;

  // As Executor's, on every rank. With several ranks the outcome is none or logits, which rank 0 alone returns, and one
  // step is under way at a time. When a rank has failed, the others' waits end, and start and finish throw its error and
  // its number, from then on.
  void start(const StepPlan& plan, Outcome outcome, Histories histories = {});
  int most_in_flight() const { return size() == 1 ? Executor::kMostInFlight : 1; }
  StepResult finish();

  // Throws the error of a rank that has failed or is lost, if one is. For a caller that waits for its user, as steps tell
  // of it themselves. Cheap.
  void check();

  // A step by itself: start, finish.
  Tensor run(const StepPlan& plan);

  // What a step of one rank reads.
  struct Reads {
    std::size_t weight_bytes_per_step = 0;  // of one token
    ExpertReads experts;
    std::size_t cache_bytes_per_token = 0;

    // As ModelShape's.
    std::size_t weight_bytes_of_step(std::int64_t num_tokens) const {
      return weight_bytes_per_step + experts.bytes_beyond_one_token(num_tokens);
    }
  };
  Reads reads_of(int rank) const { return reads_[static_cast<std::size_t>(rank)]; }

  // Of all ranks.
  std::size_t weight_bytes_of_step(std::int64_t num_tokens) const;
  std::size_t cache_bytes_per_token() const;

 private:
  void serve(int rank, const ExecutorLimits& limits, int threads);
  void fail(int rank);
  bool of_processes() const { return ranks_.front().world != nullptr && ranks_.front().world->of_processes(); }
  RankWorld& world() const { return *ranks_.front().world; }
  void send(const StepPlan& plan);
  void stop();
  void guarded(FunctionRef<void()> action);

  ChoiceTables tables_;
  RankModels ranks_;  // without the models, which are the executors'
  DecodeChooser decode_;
  std::vector<Reads> reads_;            // by rank
  StepChannel channel_;                 // to ranks that are threads
  std::vector<std::byte> packed_;       // a step for ranks that are processes
  std::unique_ptr<Executor> executor_;  // rank 0's
  std::vector<std::thread> threads_;    // of the other ranks
};

// A rank other than 0 of a model whose ranks are processes (load_launched_rank): carries out rank 0's steps until that ends.
// `threads`: of this process. Throws as Executor does, and the fabric's error when another rank is lost.
void follow(RankModels ranks, int threads);

}  // namespace heddle
