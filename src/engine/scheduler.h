// Which tokens the next step computes: all running sequences one token each, and waiting prompts in chunks.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "engine/kept_sequences.h"
#include "engine/page_allocator.h"
#include "step/step_plan.h"

namespace heddle {

// What is wanted of a sequence.
struct SequenceGoals {
  SamplingParams sampling;
  bool samples = true;  // a token after the last; without, the last token itself is never computed
  // Log-probabilities of the prompt's tokens from here on, each from the row before it. The default: none.
  int first_scored = std::numeric_limits<int>::max();
};

// One sequence as the scheduler keeps it.
struct Sequence {
  std::int64_t id = 0;
  std::vector<std::int32_t> tokens;  // prompt, then what was sampled; the last may be one to come (StepPlan::tokens)
  std::int64_t prompt_length = 0;
  SequenceGoals goals;  // first_scored moves on as tokens are scored
  int computed = 0;     // tokens whose keys and values are in the cache
  PageTable pages;
  bool paused = false;  // nothing is to be computed until it is removed or started over

  // Tokens that are not computed and have to be.
  int pending() const { return static_cast<int>(tokens.size()) - computed - (goals.samples ? 0 : 1); }
};

struct SchedulerLimits {
  int max_tokens = 512;    // of one step
  int max_sequences = 64;  // in one step
  int max_samples = 64;    // rows of logits in one step, at least max_sequences
  int page_size = 32;
};

// First come, first served. A sequence that is given a place keeps it until it is removed, unless pages run out: then
// the youngest loses its pages and waits again, keeping its tokens. What a sequence's tokens are does not depend on any
// of this, since a step's numbers do not depend on what else is in it.
// Sequences that have ended may be kept: one that begins with the same tokens then starts from theirs, with the same
// result. Those give way before anything that runs or waits does.
class Scheduler {
 public:
  Scheduler(PageAllocator& pages, SchedulerLimits limits);

  // `tokens` must not be empty, nor be a single one of which nothing is sampled. A sequence must fit into the cache
  // alone: tokens it will ever have <= all pages.
  void add(std::int64_t id, std::vector<std::int32_t> tokens, const SequenceGoals& goals);
  void remove(std::int64_t id);  // running, waiting or kept; does nothing for other ids

  // Ends a running or waiting sequence and keeps what is computed of it, but for its last token, until remove(id) or
  // until pages run short. Its tokens must be known.
  void keep(std::int64_t id);

  // Writes the next step, empty when there is nothing to do, and takes its pages.
  void plan(StepPlan& plan);

  // Notes that the step is computed, or will be before any later one: its tokens are in the cache.
  void complete(const StepPlan& plan);

  // Notes that steps have failed: all sequences start again, since neither tokens nor copies of pages may be there.
  // Tokens that were to come are forgotten.
  void start_over();

  // The sequence, or null. Valid until the next add or remove.
  Sequence* find(std::int64_t id);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }

 private:
  struct Room {  // left in a step
    int tokens = 0;
    int samples = 0;
  };

  Room room_in(const StepPlan& plan) const;
  bool schedule(Sequence& sequence, Room room, StepPlan& plan);
  bool find_pages(Sequence& waiting);
  bool preempt_youngest_after(std::size_t index);

  PageAllocator& pages_;
  SchedulerLimits limits_;
  std::deque<std::unique_ptr<Sequence>> running_;  // oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;
  KeptSequences kept_;
};

}  // namespace heddle
