// Which tokens the next step computes: all running sequences one token each, and waiting prompts in chunks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/page_allocator.h"
#include "step/step_plan.h"

namespace heddle {

// One sequence as the scheduler keeps it.
struct Sequence {
  std::int64_t id = 0;
  std::vector<std::int32_t> tokens;  // prompt, then what was sampled
  std::int64_t prompt_length = 0;
  SamplingParams sampling;
  int computed = 0;  // tokens whose keys and values are in the cache
  PageTable pages;
};

struct SchedulerLimits {
  int max_tokens = 512;    // of one step
  int max_sequences = 64;  // in one step
  int page_size = 32;
};

// First come, first served. A sequence that is given a place keeps it until it is removed, unless pages run out: then
// the youngest loses its pages and waits again, keeping its tokens. What a sequence's tokens are does not depend on any
// of this, since a step's numbers do not depend on what else is in it.
class Scheduler {
 public:
  Scheduler(PageAllocator& pages, SchedulerLimits limits);

  // `tokens` must not be empty. A sequence must fit into the cache alone: tokens it will ever have <= all pages.
  void add(std::int64_t id, std::vector<std::int32_t> tokens, const SamplingParams& sampling);
  void remove(std::int64_t id);  // running or waiting; does nothing for other ids

  // Writes the next step, empty when there is nothing to do, and takes its pages.
  void plan(StepPlan& plan);

  // Notes that the step was computed: its tokens are in the cache.
  void complete(const StepPlan& plan);

  // The sequence, or null. Valid until the next add or remove.
  Sequence* find(std::int64_t id);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }

 private:
  bool schedule(Sequence& sequence, int max_tokens, StepPlan& plan);
  bool preempt_youngest_after(std::size_t index);

  PageAllocator& pages_;
  SchedulerLimits limits_;
  std::deque<std::unique_ptr<Sequence>> running_;  // oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;
};

}  // namespace heddle
