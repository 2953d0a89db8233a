#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"

namespace heddle {
namespace {

std::vector<std::int32_t> prompt(int length, int first = 0) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<int> tokens_per_sequence(const StepPlan& plan) {
  std::vector<int> counts;
  for (const StepSequence& sequence : plan.sequences) counts.push_back(sequence.num_tokens);
  return counts;
}

// Computes the plan as an engine would: samples one token for each sample.
void run(Scheduler& scheduler, const StepPlan& plan) {
  scheduler.complete(plan);
  for (const StepSample& sample : plan.samples)
    scheduler.find(plan.sequences[static_cast<std::size_t>(sample.sequence)].request)->tokens.push_back(1);
}

TEST(Scheduler, ALongPromptIsComputedInChunks) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, {.max_tokens = 8, .max_sequences = 4, .page_size = 4});
  scheduler.add(1, prompt(19), {});
  StepPlan plan;
  std::vector<std::int32_t> computed;
  for (const int expected : {8, 8, 3}) {
    EXPECT_TRUE(plan.samples.empty());
    scheduler.plan(plan);
    validate(plan, {.max_pages_per_sequence = 100}, 4, 100, 1000);
    EXPECT_THAT(tokens_per_sequence(plan), testing::ElementsAre(expected));
    computed.insert(computed.end(), plan.tokens.begin(), plan.tokens.end());
    run(scheduler, plan);
  }
  EXPECT_EQ(computed, prompt(19));
  ASSERT_EQ(plan.samples.size(), 1u);
  EXPECT_EQ(plan.samples[0].position, 19);
  scheduler.plan(plan);
  EXPECT_THAT(plan.tokens, testing::ElementsAre(1));
  EXPECT_THAT(plan.positions, testing::ElementsAre(19));
}

TEST(Scheduler, DecodingGoesOnBesideALongPrompt) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, {.max_tokens = 8, .max_sequences = 4, .page_size = 4});
  scheduler.add(1, prompt(2), {});
  StepPlan plan;
  scheduler.plan(plan);
  run(scheduler, plan);
  scheduler.add(2, prompt(30), {});
  scheduler.add(3, prompt(1), {});
  scheduler.plan(plan);
  EXPECT_THAT(tokens_per_sequence(plan), testing::ElementsAre(1, 7));
  run(scheduler, plan);
  scheduler.plan(plan);
  EXPECT_THAT(tokens_per_sequence(plan), testing::ElementsAre(1, 7)) << "the third waits for room in the step";
}

TEST(Scheduler, RunsNoMoreSequencesThanItMay) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, {.max_tokens = 64, .max_sequences = 2, .page_size = 4});
  for (int id = 0; id < 3; ++id) scheduler.add(id, prompt(2), {});
  StepPlan plan;
  scheduler.plan(plan);
  EXPECT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(scheduler.num_waiting(), 1);
  run(scheduler, plan);
  scheduler.remove(0);
  scheduler.plan(plan);
  EXPECT_EQ(plan.sequences.back().request, 2);
}

TEST(Scheduler, RemovalGivesPagesBack) {
  PageAllocator pages(10);
  Scheduler scheduler(pages, {.max_tokens = 64, .max_sequences = 4, .page_size = 4});
  scheduler.add(1, prompt(9), {});
  scheduler.add(2, prompt(3), {});
  StepPlan plan;
  scheduler.plan(plan);
  EXPECT_EQ(pages.num_free(), 6);
  scheduler.remove(1);
  scheduler.remove(77);
  EXPECT_EQ(pages.num_free(), 9);
  EXPECT_EQ(scheduler.find(1), nullptr);
  scheduler.remove(2);
  EXPECT_TRUE(scheduler.idle());
  scheduler.plan(plan);
  EXPECT_TRUE(plan.sequences.empty());
}

// With room for about one and a half sequences, the younger is preempted, recomputed, and loses no token.
TEST(Scheduler, TheYoungestGivesWayWhenPagesRunOut) {
  PageAllocator pages(6);
  Scheduler scheduler(pages, {.max_tokens = 16, .max_sequences = 4, .page_size = 4});
  constexpr int kLength = 20;
  for (int id = 0; id < 3; ++id) scheduler.add(id, prompt(5, 100 * id), {});
  StepPlan plan;
  std::map<std::int64_t, std::vector<std::int32_t>> finished;
  std::vector<std::int64_t> order;
  int steps = 0;
  bool preempted = false;
  int computed = 0;
  while (!scheduler.idle()) {
    ASSERT_LT(++steps, 500);
    const int running = scheduler.num_running();
    scheduler.plan(plan);
    preempted |= scheduler.num_running() < running;
    validate(plan, {.max_pages_per_sequence = 6}, 4, 6, 1000);
    computed += static_cast<int>(plan.tokens.size());
    ASSERT_FALSE(plan.sequences.empty()) << "no progress";
    run(scheduler, plan);
    for (const StepSequence& step : plan.sequences) {
      const Sequence* sequence = scheduler.find(step.request);
      if (std::ssize(sequence->tokens) < kLength) continue;
      finished[step.request] = sequence->tokens;
      order.push_back(step.request);
      scheduler.remove(step.request);
    }
  }
  EXPECT_TRUE(preempted);
  EXPECT_LE(computed, 3 * kLength + 2 * kLength) << "what gives way is computed again, but not again and again";
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2));
  for (const auto& [id, tokens] : finished) {
    std::vector<std::int32_t> expected = prompt(5, static_cast<int>(100 * id));
    expected.resize(kLength, 1);
    EXPECT_EQ(tokens, expected);
  }
  EXPECT_EQ(pages.num_free(), 6);
}

// Holds prompts of more than 4 tokens while more than two sequences run, until half of all wait or for 5 plans.
constexpr SchedulerLimits kHolds{.max_tokens = 64,
                                 .max_sequences = 16,
                                 .page_size = 4,
                                 .hold = {.percent = 50, .most_plans = 5, .most_running = 2, .brief_tokens = 4}};

std::vector<std::int64_t> requests_of(const StepPlan& plan) {
  std::vector<std::int64_t> ids;
  for (const StepSequence& sequence : plan.sequences) ids.push_back(sequence.request);
  return ids;
}

std::vector<std::int64_t> next_step(Scheduler& scheduler) {
  StepPlan plan;
  scheduler.plan(plan);
  run(scheduler, plan);
  return requests_of(plan);
}

// Sequences 1 to `count`, with prompts of 8 tokens, decode.
void let_decode(Scheduler& scheduler, int count) {
  for (int id = 1; id <= count; ++id) scheduler.add(id, prompt(8, 100 * id), {});
  next_step(scheduler);
}

TEST(Scheduler, NewPromptsWaitWhileManyDecodeAndGoTogether) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, kHolds);
  let_decode(scheduler, 3);
  scheduler.add(4, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  scheduler.add(5, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.add(6, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  scheduler.add(7, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4, 5, 6)) << "the next ones wait again";
}

TEST(Scheduler, PromptsThatGoTogetherGoUntilNoneWaits) {
  PageAllocator pages(100);
  SchedulerLimits limits = kHolds;
  limits.max_tokens = 16;
  Scheduler scheduler(pages, limits);
  let_decode(scheduler, 2);
  next_step(scheduler);
  scheduler.add(3, prompt(14), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  for (int id = 4; id < 8; ++id) scheduler.add(id, prompt(13), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4));  // the step is full, and no prompt is left over
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4, 5)) << "though fewer than half wait now";
}

TEST(Scheduler, APromptThatWaitsAloneGoesAfterSoManyPlans) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, kHolds);
  let_decode(scheduler, 3);
  for (int id = 4; id < 6; ++id) {
    scheduler.add(id, prompt(8), {});
    for (int plan = 0; plan < 5; ++plan) EXPECT_EQ(next_step(scheduler).back(), id - 1);
    EXPECT_EQ(next_step(scheduler).back(), id);
  }
}

TEST(Scheduler, APromptDoesNotWaitWhereFewSequencesRun) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, kHolds);
  let_decode(scheduler, 2);
  scheduler.add(3, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  scheduler.add(4, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  scheduler.remove(1);
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(2, 3, 4));
}

TEST(Scheduler, AStepThatComputesAPromptAnywayTakesMore) {
  PageAllocator pages(100);
  SchedulerLimits limits = kHolds;
  limits.max_tokens = 16;
  Scheduler scheduler(pages, limits);
  let_decode(scheduler, 2);
  scheduler.add(3, prompt(20), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  scheduler.add(4, prompt(8), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4));
}

TEST(Scheduler, APromptWithLittleToComputeDoesNotWait) {
  PageAllocator pages(100);
  SchedulerLimits limits = kHolds;
  limits.prefix_cache = true;
  Scheduler scheduler(pages, limits);
  let_decode(scheduler, 4);
  std::vector<std::int32_t> more = prompt(8, 100);  // the first's
  more.resize(12, 7);
  scheduler.add(5, more, {.owner = 1});  // who has never asked for it
  scheduler.add(6, more, {});
  scheduler.add(7, prompt(4, 900), {});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4, 6, 7));
  EXPECT_EQ(scheduler.counters().num_prefix_hits, 8);
}

TEST(Scheduler, SamplesOfAComputedPromptDoNotWait) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, kHolds);
  let_decode(scheduler, 3);
  scheduler.add(4, prompt(8, 100), {.same_prompt_as = 1});
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4));
}

TEST(Scheduler, APreemptedSequenceDoesNotWaitWithNewPrompts) {
  PageAllocator pages(16);
  Scheduler scheduler(pages, kHolds);
  let_decode(scheduler, 5);
  for (int plan = 0; plan < 4; ++plan) EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 4)) << "the fifth gives its pages up";
  scheduler.remove(1);
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(2, 3, 4, 5));
}

TEST(Scheduler, TheNextPromptWaitsAnewAfterACancelledOne) {
  PageAllocator pages(100);
  Scheduler scheduler(pages, kHolds);
  let_decode(scheduler, 3);
  scheduler.add(4, prompt(8), {});
  for (int plan = 0; plan < 4; ++plan) next_step(scheduler);
  scheduler.remove(4);
  next_step(scheduler);
  scheduler.add(5, prompt(8), {});
  for (int plan = 0; plan < 5; ++plan) EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(next_step(scheduler), testing::ElementsAre(1, 2, 3, 5));
}

// Of two owners, while brief prompts overtake others and answers end at any time.
TEST(Scheduler, NoPromptWaitsForMorePlansThanItMay) {
  PageAllocator pages(1000);
  SchedulerLimits limits = kHolds;
  limits.max_tokens = 1000;
  limits.max_sequences = limits.max_samples = 100;
  Scheduler scheduler(pages, limits);
  std::mt19937 random(1);
  std::map<std::int64_t, int> waits;
  std::int64_t next_id = 0;
  int longest = 0;
  for (int plan = 0; plan < 3000; ++plan) {
    if (random() % 3 == 0) {
      scheduler.add(next_id, prompt(random() % 4 == 0 ? 3 : 9, static_cast<int>(random() % 1000)),
                    {.owner = random() % 2});
      waits[next_id++] = 0;
    }
    const std::vector<std::int64_t> step = next_step(scheduler);
    for (const std::int64_t id : step) waits.erase(id);
    for (auto& [id, wait] : waits) longest = std::max(longest, ++wait);
    if (step.size() > 8 || (!step.empty() && random() % 4 == 0)) scheduler.remove(step[random() % step.size()]);
  }
  EXPECT_EQ(longest, 5);
}

TEST(Scheduler, ASequenceThatCannotFitAloneIsAnErrorNotALoop) {
  PageAllocator pages(2);
  Scheduler scheduler(pages, {.max_tokens = 16, .max_sequences = 1, .page_size = 4});
  scheduler.add(1, prompt(8), {});
  StepPlan plan;
  scheduler.plan(plan);
  run(scheduler, plan);
  EXPECT_THROW(scheduler.plan(plan), InvalidArgument);
}

TEST(Scheduler, NeedsATokenForEverySequence) {
  PageAllocator pages(2);
  EXPECT_THROW(Scheduler(pages, {.max_tokens = 3, .max_sequences = 4, .page_size = 4}), InvalidArgument);
  Scheduler scheduler(pages, {.max_tokens = 4, .max_sequences = 4, .page_size = 4});
  EXPECT_THROW(scheduler.add(1, {}, {}), InvalidArgument);
}

}  // namespace
}  // namespace heddle
