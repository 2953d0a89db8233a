#include "engine/scheduler.h"

#include <algorithm>
#include <span>

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
  sequence.cached = {};
}

constexpr double kAnswerWeight = 2;  // of a token in a virtual counter; a prompt's is 1

}  // namespace

Scheduler::Scheduler(PageAllocator& pages, SchedulerLimits limits)
    : pages_(pages), limits_(limits), prefixes_(pages, limits.page_size) {
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
  by_id_.emplace(id, waiting_.back().get());
  Owner& owner = owners_[goals.owner];
  if (owner.num_sequences == 0) {  // it does not catch up on the time in which it had asked for nothing
    std::optional<double> least;
    for (const auto& [other, entry] : owners_)
      if (entry.num_sequences > 0) least = std::min(least.value_or(entry.served), entry.served);
    owner.served = std::max(owner.served, least.value_or(0));
  }
  ++owner.num_sequences;
  ++owner.num_waiting;
}

void Scheduler::leave(const Sequence& sequence, bool waiting) {
  Owner& owner = owners_[sequence.goals.owner];
  --owner.num_sequences;
  if (waiting) --owner.num_waiting;
  by_id_.erase(sequence.id);
}

void Scheduler::remove(std::int64_t id) {
  kept_.remove(id);
  if (!by_id_.contains(id)) return;
  for (auto* queue : {&running_, &waiting_}) {
    const auto found = std::ranges::find(*queue, id, [](const auto& sequence) { return sequence->id; });
    if (found == queue->end()) continue;
    prefixes_.touch((*found)->cached);
    leave(**found, queue == &waiting_);
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
    const bool waiting = std::ranges::any_of(waiting_, [&](const auto& each) { return each.get() == sequence; });
    leave(*sequence, waiting);
    std::erase_if(waiting ? waiting_ : running_, [&](const auto& each) { return each.get() == sequence; });
  }
}

Sequence* Scheduler::find(std::int64_t id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
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
      if (give_way() || preempt_youngest_after(i)) continue;
      // It is the youngest itself. The oldest always fits: in the end it has all pages.
      require(i > 0, "scheduler: sequence {} does not fit into a cache of {} pages", running_[i]->id,
              pages_.num_pages());
      break;
    }
  }
  decide_on_hold(plan);
  while (num_running() < limits_.max_sequences) {
    const std::size_t next = next_waiting();
    if (next == waiting_.size() || waiting_[next]->paused) break;
    const Room room = room_in(plan);
    if (room.tokens < 1 || room.samples < 1 || !find_pages(*waiting_[next])) break;
    running_.push_back(std::move(waiting_[next]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next));
    running_.back()->preempted = false;
    --owners_[running_.back()->goals.owner].num_waiting;
    if (!schedule(*running_.back(), room, plan)) break;
  }
  takes_prompts_ = takes_prompts_ && !waiting_.empty();
}

// `plan` has the running sequences alone.
void Scheduler::decide_on_hold(const StepPlan& plan) {
  const PromptHold& hold = limits_.hold;
  const bool computes_prompt = plan.tokens.size() > plan.sequences.size();
  const int all = num_running() + num_waiting();
  takes_prompts_ = takes_prompts_ || computes_prompt || num_running() <= hold.most_running ||
                   plans_held_ >= hold.most_plans || 100 * num_waiting() >= hold.percent * all;
  plans_held_ = takes_prompts_ || waiting_.empty() ? 0 : plans_held_ + 1;
}

// The index of the waiting sequence that runs next: a preempted one, else the first that may start of the owner who has
// been served least. waiting_.size() if there is none.
std::size_t Scheduler::next_waiting() {
  if (!waiting_.empty() && waiting_.front()->preempted) return 0;
  const auto num_owners =
      std::ranges::count_if(owners_, [](const auto& entry) { return entry.second.num_waiting > 0; });
  std::vector<std::uint64_t> seen;
  std::size_t best = waiting_.size();
  for (std::size_t i = 0; i < waiting_.size() && std::ssize(seen) < num_owners; ++i) {
    const std::uint64_t owner = waiting_[i]->goals.owner;
    if (std::ranges::find(seen, owner) != seen.end() || !may_start(*waiting_[i])) continue;
    seen.push_back(owner);
    if (best == waiting_.size() || owners_[owner].served < owners_[waiting_[best]->goals.owner].served) best = i;
  }
  return best;
}

// False while another sequence still computes the prompt of both, and while new prompts wait for each other.
bool Scheduler::may_start(Sequence& waiting) {
  const Sequence* leader = waiting.goals.same_prompt_as ? find(*waiting.goals.same_prompt_as) : nullptr;
  if (leader != nullptr && leader->computed < waiting.prompt_length - 1) return false;
  return takes_prompts_ || is_brief(waiting);
}

// Looks once, not in each plan: a prefix that becomes known later ends no wait.
bool Scheduler::is_brief(Sequence& waiting) {
  if (!waiting.brief)
    waiting.brief =
        static_cast<int>(waiting.tokens.size()) - reusable_pages(waiting).length() <= limits_.hold.brief_tokens;
  return *waiting.brief;
}

// The part of a waiting sequence's beginning that is in the cache already.
PageTable Scheduler::reusable_pages(Sequence& waiting) {
  const auto length = static_cast<int>(waiting.tokens.size());
  const int reusable = std::min(length - 1, first_scoring_row(waiting));  // rows whose logits are needed are computed
  waiting.cached = {};
  PageTable prefix = kept_.longest_prefix(waiting.tokens, reusable).value_or(PageTable(pages_, limits_.page_size));
  if (limits_.prefix_cache) {
    PrefixCache::Chain chain;
    PageTable cached = prefixes_.longest_prefix(waiting.goals.owner, waiting.tokens, reusable, chain);
    if (cached.length() > prefix.length()) {
      prefix = std::move(cached);
      waiting.cached = chain;
    }
  }
  const Sequence* leader = waiting.goals.same_prompt_as ? find(*waiting.goals.same_prompt_as) : nullptr;
  const int shared =
      leader == nullptr
          ? 0
          : std::min({reusable, static_cast<int>(waiting.prompt_length) - 1, leader->computed, leader->pages.length()});
  if (shared > prefix.length()) {
    prefix = leader->pages.fork();
    prefix.truncate(shared);
    waiting.cached = {};
  }
  return prefix;
}

// Gives a waiting sequence the cached part of its beginning, provided that there is room for all its tokens. Otherwise it
// would be computed in part, lose its pages again, and waste the work.
bool Scheduler::find_pages(Sequence& waiting) {
  const auto length = static_cast<int>(waiting.tokens.size());
  PageTable prefix = reusable_pages(waiting);
  while (prefix.pages_needed(length) > pages_.num_free())
    if (!give_way()) return false;
  counters_.num_prefix_queries += length;
  counters_.num_prefix_hits += prefix.length();
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
  owners_[sequence.goals.owner].served += context_len > sequence.prompt_length ? kAnswerWeight : num_tokens;

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
  prefixes_.touch(youngest->cached);
  start_again(*youngest);
  youngest->preempted = true;
  ++owners_[youngest->goals.owner].num_waiting;
  ++counters_.num_preemptions;
  waiting_.push_front(std::move(youngest));
  return true;
}

void Scheduler::complete(const StepPlan& plan) {
  for (const StepSequence& step : plan.sequences)
    if (Sequence* sequence = find(step.request)) {
      sequence->computed = step.context_len;
      if (!limits_.prefix_cache) continue;
      auto known = static_cast<std::size_t>(step.context_len);
      if (sequence->tokens[known - 1] < 0) --known;
      prefixes_.add(sequence->goals.owner, std::span(sequence->tokens).first(known), sequence->pages, sequence->cached);
    }
}

void Scheduler::start_over() {
  prefixes_.clear();
  for (auto* queue : {&running_, &waiting_})
    for (const auto& sequence : *queue) {
      if (sequence->tokens.back() < 0) sequence->tokens.pop_back();
      sequence->paused = false;
      start_again(*sequence);
    }
}

}  // namespace heddle
