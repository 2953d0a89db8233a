#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

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
