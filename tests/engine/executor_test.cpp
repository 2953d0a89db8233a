// Steps whose numbers must not be used: on the CPU, with a model that waits for what nobody brings.
#include "engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/kernel_waits.h"
#include "device/spin.h"
#include "engine/while_alone.h"

namespace heddle {
namespace {

using testing::HasSubstr;

// A wait of `in_step` gives up, after which the step goes on, as a kernel does, to logits that look sound.
class WaitingModel : public Model {
 public:
  explicit WaitingModel(int in_step) : in_step_(in_step) {}

  const ModelShape& shape() const override { return shape_; }
  Tensor run(const StepTensors& step, const KvPages&, Arena& arena, const Execution& execution) override {
    const Tensor logits = arena.take(step.num_logit_rows, 16, DType::float32);
    if (execution.compute.dry_run != nullptr) return logits;
    KernelWaits waits = waits_of(execution.compute.stream, "a test");
    waits.limit.nanoseconds = 1'000'000;
    execution.compute.stream.enqueue([this, waits, logits, is_waiting = ++steps_ == in_step_](ThreadPool&) {
      if (is_waiting) static_cast<void>(spin_until(waits.limit, {-1, 7, waits.tag}, &never_raised_, 1));
      for (int id = 0; id < 16 * static_cast<int>(logits.rows); ++id)
        static_cast<float*>(logits.data)[id] = id % 16 == 5 ? 2.0F : 1.0F;
    });
    return logits;
  }

 private:
  const int in_step_;
  int steps_ = 0;
  std::uint64_t never_raised_ = 0;
  ModelShape shape_{.num_layers = 1, .kv = keys_and_values(1, 2, DType::float32), .vocab_size = 16, .max_context = 64};
};

constexpr ExecutorLimits kSmall{
    .step = {.max_tokens = 4, .max_sequences = 2, .max_samples = 4, .max_pages_per_sequence = 2},
    .page_size = 4,
    .num_pages = 4};

StepPlan one_token(int position) {
  StepPlan plan;
  plan.tokens = {1};
  plan.positions = {position};
  plan.sequences.push_back({.num_tokens = 1, .context_len = position + 1, .num_pages = 2});
  plan.pages = {0, 1};
  plan.samples.push_back({.row = 0, .position = position + 1, .params = {}});
  return plan;
}

template <class Act>
std::string timeout_of(Act act) {
  try {
    act();
  } catch (const Timeout& timeout) {
    return timeout.what();
  }
  return "no timeout";
}

TEST(Executor, APoisonedStepIsNeverSampled) {
  for (const Outcome outcome : {Outcome::tokens, Outcome::logits, Outcome::none}) {
    Executor executor(std::make_unique<WaitingModel>(2), kSmall, 1);
    executor.start(one_token(0), Outcome::tokens);
    EXPECT_EQ(executor.finish().tokens.front(), 5);
    executor.start(one_token(1), outcome);
    EXPECT_THAT(timeout_of([&] { executor.finish(); }),
                HasSubstr("kernel a test: block 7 waited past the deadline of 10.0 s: expected 1, observed 0"));
    EXPECT_EQ(executor.num_in_flight(), 0);
    EXPECT_THROW(executor.fetch_logits(), Failure);
    EXPECT_THROW(executor.start(one_token(2), Outcome::tokens), Failure);  // whose cache is that of the step before
  }
}

TEST(Executor, AStepBehindAPoisonedOneIsLostWithIt) {
  Executor executor(std::make_unique<WaitingModel>(1), kSmall, 1);
  executor.start(one_token(0), Outcome::tokens);
  executor.start(one_token(1), Outcome::tokens);
  EXPECT_THROW(executor.finish(), Timeout);
  EXPECT_EQ(executor.num_in_flight(), 0);
}

TEST(Executor, AWaitOfTheFabricPoisonsAStepToo) {
  WaitRecord of_fabric;
  Executor executor(std::make_unique<WaitingModel>(0), kSmall, 1);
  executor.watch({.record = &of_fabric, .nanoseconds = 3'000'000'000});
  EXPECT_EQ(executor.sample(one_token(0)).front(), 5);
  report(of_fabric, {.rank = 0, .from = 2, .tag = "all-reduce"}, 7, 6);
  EXPECT_THAT(timeout_of([&] { executor.sample(one_token(1)); }),
              HasSubstr("rank 0 waited for rank 2 past the deadline of 3.0 s: all-reduce: expected 7, observed 6"));
  EXPECT_THROW(executor.run(one_token(2)), Failure);
}

TEST(WhileAlone, EndsWhereAStepThrows) {
  bool alone = false;
  EXPECT_THROW(
      {
        const WhileAlone by_itself(alone);
        EXPECT_TRUE(alone);
        throw_error<Failure>("a warm-up");
      },
      Failure);
  EXPECT_FALSE(alone);
}

// Whatever is asked, the CPU has no SMs to keep to.
TEST(Executor, ABudgetOfSmsLeavesTheCpuAsItIs) {
  ExecutorLimits limits = kSmall;
  limits.num_sms = 7;
  Executor executor(std::make_unique<WaitingModel>(0), limits, 1);
  EXPECT_EQ(executor.lane().num_sms, 0);
  EXPECT_EQ(&executor.lane().stream, &executor.stream());
  EXPECT_EQ(executor.sample(one_token(0)).front(), 5);
}

}  // namespace
}  // namespace heddle
