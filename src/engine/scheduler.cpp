#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

Scheduler::Scheduler(PageAllocator& pages, SchedulerLimits limits) : pages_(pages), limits_(limits) {
  require(limits.max_tokens >= limits.max_sequences && limits.max_sequences >= 1,
          "scheduler: {} tokens a step cannot serve {} sequences", limits.max_tokens, limits.max_sequences);
}

void Scheduler::add(std::int64_t id, std::vector<std::int32_t> tokens, const SamplingParams& sampling) {
  require(!tokens.empty(), "scheduler: sequence {} has no tokens", id);
  const auto prompt_length = std::ssize(tokens);
  waiting_.push_back(std::make_unique<Sequence>(Sequence{.id = id,
                                                         .tokens = std::move(tokens),
                                                         .prompt_length = prompt_length,
                                                         .sampling = sampling,
                                                         .pages = PageTable(pages_, limits_.page_size)}));
}

void Scheduler::remove(std::int64_t id) {
  for (auto* queue : {&running_, &waiting_}) {
    const auto found = std::ranges::find(*queue, id, [](const auto& sequence) { return sequence->id; });
    if (found == queue->end()) continue;
    queue->erase(found);
    return;
  }
}

Sequence* Scheduler::find(std::int64_t id) {
  for (auto* queue : {&running_, &waiting_})
    for (const auto& sequence : *queue)
      if (sequence->id == id) return sequence.get();
  return nullptr;
}

void Scheduler::plan(StepPlan& plan) {
  plan.clear();
  const auto budget = [&] { return limits_.max_tokens - static_cast<int>(plan.tokens.size()); };
  // Every running sequence gets at least one token, so a long prompt cannot stall those that are decoding.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const int others = static_cast<int>(running_.size() - i) - 1;
    while (!schedule(*running_[i], budget() - others, plan)) {
      if (preempt_youngest_after(i)) continue;
      // It is the youngest itself. The oldest always fits: it has all pages to itself in the end.
      require(i > 0, "scheduler: sequence {} does not fit into a cache of {} pages", running_[i]->id,
              pages_.num_pages());
      break;
    }
  }
  while (!waiting_.empty() && budget() > 0 && num_running() < limits_.max_sequences) {
    Sequence& next = *waiting_.front();
    // Not before there is room for all it has: it would be computed in part, give way again, and have cost its time.
    if (next.pages.pages_needed(static_cast<int>(next.tokens.size())) > pages_.num_free()) break;
    if (!schedule(next, budget(), plan)) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool Scheduler::schedule(Sequence& sequence, int max_tokens, StepPlan& plan) {
  const int pending = static_cast<int>(sequence.tokens.size()) - sequence.computed;
  require(pending > 0, "scheduler: sequence {} has nothing to compute; was the last step's token not added?",
          sequence.id);
  const int num_tokens = std::min(pending, max_tokens);
  const int context_len = sequence.computed + num_tokens;
  if (!sequence.pages.grow(context_len, plan.page_copies)) return false;

  const auto first_token = static_cast<std::int32_t>(plan.tokens.size());
  const auto first = sequence.tokens.begin() + sequence.computed;
  plan.tokens.insert(plan.tokens.end(), first, first + num_tokens);
  for (int i = 0; i < num_tokens; ++i) plan.positions.push_back(sequence.computed + i);
  const auto pages = sequence.pages.pages();
  plan.sequences.push_back({.request = sequence.id,
                            .first_token = first_token,
                            .num_tokens = num_tokens,
                            .context_len = context_len,
                            .first_page = static_cast<std::int32_t>(plan.pages.size()),
                            .num_pages = static_cast<std::int32_t>(pages.size())});
  plan.pages.insert(plan.pages.end(), pages.begin(), pages.end());
  if (num_tokens == pending)
    plan.samples.push_back({.sequence = static_cast<std::int32_t>(plan.sequences.size()) - 1,
                            .row = first_token + num_tokens - 1,
                            .position = context_len,
                            .params = sequence.sampling});
  return true;
}

bool Scheduler::preempt_youngest_after(std::size_t index) {
  if (running_.size() <= index + 1) return false;
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  youngest->pages.truncate(0);
  youngest->computed = 0;
  waiting_.push_front(std::move(youngest));
  return true;
}

void Scheduler::complete(const StepPlan& plan) {
  for (const StepSequence& step : plan.sequences)
    if (Sequence* sequence = find(step.request)) sequence->computed = step.context_len;
}

}  // namespace heddle
