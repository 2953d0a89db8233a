// Chooses the tokens of the next step: one for each running sequence, and chunks of waiting prompts.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/kept_sequences.h"
#include "engine/page_allocator.h"
#include "engine/prefix_cache.h"
#include "step/step_plan.h"

namespace heddle {

// The results wanted from a sequence.
struct SequenceGoals {
  SamplingParams sampling;
  bool samples = true;  // one token after the last; if false, the last token itself is never computed
  // Log-probabilities of the prompt's tokens from here on, each from the previous row. Default: none.
  int first_scored = std::numeric_limits<int>::max();
  std::uint64_t owner = 0;  // sequences of one owner share cached pages, and take turns with those of others
  // An earlier sequence with the same prompt: this one waits until that has computed the prompt, and shares its pages.
  std::optional<std::int64_t> same_prompt_as;
};

// A sequence in the scheduler.
struct Sequence {
  std::int64_t id = 0;
  std::vector<std::int32_t> tokens;  // prompt, then sampled tokens; the last may not be known yet (StepPlan::tokens)
  std::int64_t prompt_length = 0;
  SequenceGoals goals;  // first_scored advances as tokens are scored
  int computed = 0;     // tokens whose keys and values are in the cache
  PageTable pages;
  bool paused = false;     // compute nothing until it is removed or started over
  bool preempted = false;  // has lost its pages, and goes first when there are some
  PrefixCache::Chain cached;
  std::optional<bool> brief;  // has PromptHold::brief_tokens to compute at most; nothing until that counts

  // Tokens that still have to be computed.
  int pending() const { return static_cast<int>(tokens.size()) - computed - (goals.samples ? 0 : 1); }
};

// New prompts may wait for each other, because each step with a prompt delays the tokens of all that decode: fewer such
// steps lower the time between tokens, and raise that to the first (docs/notes/serving.md). Once they go, they go until none
// waits. Sequences that have run before, and samples of a prompt that is computed, do not wait.
struct PromptHold {
  int percent = 0;         // they go once they are so many of all sequences; 0: they do not wait
  int most_plans = 32;     // or once so many plans were made without them
  int most_running = 32;   // or while no more than so many sequences run
  int brief_tokens = 128;  // a prompt with so few tokens to compute does not wait, because its step hardly takes longer
};

struct SchedulerLimits {
  int max_tokens = 512;    // per step
  int max_sequences = 64;  // per step
  int max_samples = 64;    // rows of logits per step, at least max_sequences
  int page_size = 32;
  bool prefix_cache = false;  // pages stay when a sequence ends, for others that begin with the same tokens
  PromptHold hold = {};
};

// Sums since the start.
struct SchedulerCounters {
  std::int64_t num_preemptions = 0;
  std::int64_t num_prefix_queries = 0;  // tokens of sequences that were given pages, in which a prefix was looked for
  std::int64_t num_prefix_hits = 0;     // those of them that were found
};

// First come, first served among the sequences of one owner, but for brief prompts while others are held. Between owners,
// the one that has been served least goes first: a virtual counter for each counts its computed tokens, those of answers
// twice (VTC; Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, algorithm 1). A running sequence runs
// until it is removed, unless pages run out: then the youngest loses its pages and waits again, with its tokens. Scheduling
// does not change the tokens of a sequence, because the results of a step do not depend on the other sequences in it. Ended
// sequences may be kept: one that begins with the same tokens then reuses their pages, with the same result. Kept sequences
// lose their pages before running or waiting ones.
class Scheduler {
 public:
  Scheduler(PageAllocator& pages, SchedulerLimits limits);

  // `tokens` must not be empty, nor a single token if nothing is sampled. A sequence must fit into the cache alone: all
  // tokens it will ever have <= all pages.
  void add(std::int64_t id, std::vector<std::int32_t> tokens, const SequenceGoals& goals);
  void remove(std::int64_t id);  // running, waiting or kept; does nothing for other ids

  // Ends a running or waiting sequence and keeps its computed pages, without its last token, until remove(id) or until
  // pages run short. Its tokens must be known.
  void keep(std::int64_t id);

  // Fills `plan` with the next step, empty when there is nothing to do, and allocates its pages.
  void plan(StepPlan& plan);

  // Records that the step is computed, or will be before any later one: its tokens are in the cache.
  void complete(const StepPlan& plan);

  // Records that steps have failed: all sequences start again, because neither their keys and values nor copied pages
  // can be relied on. Unknown tokens are dropped.
  void start_over();

  // The sequence, or null. Valid until the next add or remove.
  Sequence* find(std::int64_t id);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  const SchedulerCounters& counters() const { return counters_; }
  int num_idle_cached_pages() const { return prefixes_.num_idle_pages(); }

  // Calls `visit(const Sequence&, bool running)` for each, the running ones first.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& sequence : running_) visit(*sequence, true);
    for (const auto& sequence : waiting_) visit(*sequence, false);
  }

 private:
  struct Room {  // remaining in a step
    int tokens = 0;
    int samples = 0;
  };

  Room room_in(const StepPlan& plan) const;
  bool schedule(Sequence& sequence, Room room, StepPlan& plan);
  std::size_t next_waiting();
  void decide_on_hold(const StepPlan& plan);
  bool may_start(Sequence& waiting);
  bool is_brief(Sequence& waiting);
  bool find_pages(Sequence& waiting);
  PageTable reusable_pages(Sequence& waiting);
  bool give_way() { return kept_.give_way() || prefixes_.give_way(); }
  bool preempt_youngest_after(std::size_t index);

  PageAllocator& pages_;
  SchedulerLimits limits_;
  bool takes_prompts_ = true;                      // new prompts go; SchedulerLimits::hold decides
  int plans_held_ = 0;                             // in a row, without them
  std::deque<std::unique_ptr<Sequence>> running_;  // oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;
  KeptSequences kept_;
  PrefixCache prefixes_;
  std::unordered_map<std::int64_t, Sequence*> by_id_;  // running and waiting
  struct Owner {
    double served = 0;
    int num_sequences = 0;  // running and waiting
    int num_waiting = 0;
  };
  std::map<std::uint64_t, Owner> owners_;
  void leave(const Sequence& sequence, bool waiting);
  SchedulerCounters counters_;
};

}  // namespace heddle
