#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

namespace {

// The first row of a sequence, at or after `computed`, whose logits score a token of the prompt. Row p scores token p +
// 1; rows from prompt_length - 1 on score none.
int first_scoring_row(const Sequence& sequence) {
  return std::max(sequence.computed, sequence.goals.first_scored - 1);
}

void start_again(Sequence& sequence) {
  sequence.pages.truncate(0);
  sequence.computed = 0;
}

}  // namespace

Scheduler::Scheduler(PageAllocator& pages, SchedulerLimits limits) : pages_(pages), limits_(limits) {
  require(limits.max_tokens >= limits.max_sequences && limits.max_samples >= limits.max_sequences &&
              limits.max_sequences >= 1,
          "scheduler: {} tokens and {} rows of logits a step cannot serve {} sequences", limits.max_tokens,
          limits.max_samples, limits.max_sequences);
}

void Scheduler::add(std::int64_t id, std::vector<std::int32_t> tokens, const SequenceGoals& goals) {
  require(std::ssize(tokens) >= (goals.samples ? 1 : 2) && goals.first_scored >= 1,
          "scheduler: sequence {} has {} tokens, of which those from {} are scored: nothing to compute", id,
          tokens.size(), goals.first_scored);
  const auto prompt_length = std::ssize(tokens);
  waiting_.push_back(std::make_unique<Sequence>(Sequence{.id = id,
                                                         .tokens = std::move(tokens),
                                                         .prompt_length = prompt_length,
                                                         .goals = goals,
                                                         .pages = PageTable(pages_, limits_.page_size)}));
}

void Scheduler::remove(std::int64_t id) {
  kept_.remove(id);
  for (auto* queue : {&running_, &waiting_}) {
    const auto found = std::ranges::find(*queue, id, [](const auto& sequence) { return sequence->id; });
    if (found == queue->end()) continue;
    queue->erase(found);
    return;
  }
}

void Scheduler::keep(std::int64_t id) {
  if (Sequence* sequence = find(id)) {
    sequence->computed = std::min(sequence->computed, static_cast<int>(sequence->tokens.size()) - 1);
    sequence->pages.truncate(sequence->computed);
    sequence->tokens.resize(static_cast<std::size_t>(sequence->computed));
    kept_.keep(id, std::move(sequence->tokens), std::move(sequence->pages));
    std::erase_if(running_, [&](const auto& each) { return each.get() == sequence; });
    std::erase_if(waiting_, [&](const auto& each) { return each.get() == sequence; });
  }
}

Sequence* Scheduler::find(std::int64_t id) {
  for (auto* queue : {&running_, &waiting_})
    for (const auto& sequence : *queue)
      if (sequence->id == id) return sequence.get();
  return nullptr;
}

Scheduler::Room Scheduler::room_in(const StepPlan& plan) const {
  return {.tokens = limits_.max_tokens - static_cast<int>(plan.tokens.size()),
          .samples = limits_.max_samples - static_cast<int>(plan.samples.size())};
}

void Scheduler::plan(StepPlan& plan) {
  plan.clear();
  // Every running sequence gets at least one token, so a long prompt cannot stall the decoding ones.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->paused) continue;
    const int others = static_cast<int>(running_.size() - i) - 1;
    Room room = room_in(plan);
    room.tokens -= others;
    room.samples -= others;
    while (!schedule(*running_[i], room, plan)) {
      if (kept_.give_way() || preempt_youngest_after(i)) continue;
      // It is the youngest itself. The oldest always fits: in the end it has all pages.
      require(i > 0, "scheduler: sequence {} does not fit into a cache of {} pages", running_[i]->id,
              pages_.num_pages());
      break;
    }
  }
  while (!waiting_.empty() && !waiting_.front()->paused && num_running() < limits_.max_sequences) {
    const Room room = room_in(plan);
    if (room.tokens < 1 || room.samples < 1 || !find_pages(*waiting_.front())) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    if (!schedule(*running_.back(), room, plan)) break;
  }
}

// Gives a waiting sequence the kept part of its beginning, provided that there is room for all its tokens. Otherwise it
// would be computed in part, lose its pages again, and waste the work.
bool Scheduler::find_pages(Sequence& waiting) {
  const auto length = static_cast<int>(waiting.tokens.size());
  const int reusable = std::min(length - 1, first_scoring_row(waiting));  // rows whose logits are needed are computed
  PageTable prefix = kept_.longest_prefix(waiting.tokens, reusable).value_or(PageTable(pages_, limits_.page_size));
  while (prefix.pages_needed(length) > pages_.num_free())
    if (!kept_.give_way()) return false;
  waiting.computed = prefix.length();
  waiting.pages = std::move(prefix);
  return true;
}

bool Scheduler::schedule(Sequence& sequence, Room room, StepPlan& plan) {
  const int pending = sequence.pending();
  require(pending > 0, "scheduler: sequence {} has nothing to compute; was the last step's token not added?",
          sequence.id);
  int num_tokens = std::min(pending, room.tokens);
  const int scoring_row = first_scoring_row(sequence);
  const auto scoring_end = static_cast<int>(sequence.prompt_length) - 1;
  if (scoring_row < scoring_end) num_tokens = std::min(num_tokens, scoring_row - sequence.computed + room.samples);
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

  StepSample sample{.sequence = static_cast<std::int32_t>(plan.sequences.size()) - 1,
                    .params = sequence.goals.sampling};
  const auto add_row = [&](int row, std::int32_t scored) {
    sample.row = first_token + row - sequence.computed;
    sample.position = row + 1;
    sample.scored = scored;
    plan.samples.push_back(sample);
  };
  for (int row = scoring_row; row < std::min(context_len, scoring_end); ++row)
    add_row(row, sequence.tokens[static_cast<std::size_t>(row) + 1]);
  if (num_tokens == pending && sequence.goals.samples) add_row(context_len - 1, StepSample::kNone);
  return true;
}

bool Scheduler::preempt_youngest_after(std::size_t index) {
  if (running_.size() <= index + 1) return false;
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  start_again(*youngest);
  waiting_.push_front(std::move(youngest));
  return true;
}

void Scheduler::complete(const StepPlan& plan) {
  for (const StepSequence& step : plan.sequences)
    if (Sequence* sequence = find(step.request)) sequence->computed = step.context_len;
}

void Scheduler::start_over() {
  for (auto* queue : {&running_, &waiting_})
    for (const auto& sequence : *queue) {
      if (sequence->tokens.back() < 0) sequence->tokens.pop_back();
      sequence->paused = false;
      start_again(*sequence);
    }
}

}  // namespace heddle
