// Steps on a GPU. Skipped without one.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/pinned_buffer.h"
#include "device/spin.h"
#include "device/waiting_kernels.h"
#include "engine/executor.h"
#include "gpu_here.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

class ExecutorOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

constexpr int kSequences = 3, kPromptTokens = 5;

// A float32 model: what CPU and GPU make of its logits differs by rounding in another order alone.
std::unique_ptr<Executor> executor_on(Device device) {
  const ExecutorLimits limits{.step = {.max_tokens = kSequences * kPromptTokens,
                                       .max_sequences = kSequences,
                                       .max_samples = kSequences,
                                       .max_pages_per_sequence = 2},
                              .page_size = 16,
                              .num_pages = 2 * kSequences};
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  return std::make_unique<Executor>(load_model(Checkpoint(folder), {.device = device}), limits, 2);
}

// The next tokens of each sequence, the same number, of which the last one's logits are wanted.
StepPlan plan_of(const std::vector<std::vector<std::int32_t>>& tokens, int num_before, const SamplingParams& params) {
  StepPlan plan;
  for (int s = 0; s < kSequences; ++s) {
    const auto& its = tokens[static_cast<std::size_t>(s)];
    const int count = static_cast<int>(its.size()), first = static_cast<int>(plan.tokens.size());
    plan.sequences.push_back({.first_token = first,
                              .num_tokens = count,
                              .context_len = num_before + count,
                              .first_page = 2 * s,
                              .num_pages = 2});
    plan.pages.insert(plan.pages.end(), {2 * s, 2 * s + 1});
    plan.tokens.insert(plan.tokens.end(), its.begin(), its.end());
    for (int i = 0; i < count; ++i) plan.positions.push_back(num_before + i);
    plan.samples.push_back({.sequence = s, .row = first + count - 1, .position = num_before + count, .params = params});
  }
  return plan;
}

std::vector<std::vector<std::int32_t>> prompts() {
  return {{3, 1, 4, 1, 5}, {9, 2, 6, 5, 3}, {5, 8, 9, 7, 9}};
}

// In prefill, in the first step of a size, and in those that are replayed.
TEST_F(ExecutorOnGpu, ChoosesTokensByTheParametersOfEachStep) {
  const auto cpu = executor_on({}), gpu = executor_on(kFirstGpu);
  std::vector<std::vector<std::int32_t>> next = prompts();
  int num_before = 0, num_not_greedy = 0;
  for (int step = 0; step < 16; ++step) {
    const SamplingParams greedy;
    const SamplingParams sampled{.temperature = 1.5, .seed = 100 + static_cast<std::uint64_t>(step)};
    const StepPlan plan = plan_of(next, num_before, step % 4 == 2 ? greedy : sampled);
    const auto expected = cpu->sample(plan), tokens = gpu->sample(plan);
    const std::vector<std::int32_t> on_cpu(expected.begin(), expected.end()), on_gpu(tokens.begin(), tokens.end());
    ASSERT_EQ(on_gpu, on_cpu) << "step " << step;
    num_before += static_cast<int>(next.front().size());
    for (std::size_t s = 0; s < next.size(); ++s) {
      const auto row = logits_row(cpu->fetch_logits(), static_cast<std::int64_t>(s));
      num_not_greedy += on_cpu[s] != std::ranges::max_element(row) - row.begin();
      next[s] = {on_cpu[s]};
    }
  }
  EXPECT_GT(num_not_greedy, 10);  // else parameters would not tell
}

TEST_F(ExecutorOnGpu, APoisonedStepIsNeverSampled) {
  const auto executor = executor_on(kFirstGpu);
  EXPECT_EQ(executor->sample(plan_of(prompts(), 0, {})).size(), kSequences);
  report(*executor->stream().wait_record(), {.rank = -1, .from = 7, .tag = "a test"}, 1, 0);
  EXPECT_THROW(executor->sample(plan_of({{1}, {1}, {1}}, kPromptTokens, {})), Timeout);
  EXPECT_EQ(executor->num_in_flight(), 0);
  EXPECT_THROW(executor->sample(plan_of({{1}, {1}, {1}}, kPromptTokens, {})), Failure);
  EXPECT_THROW(executor->fetch_logits(), Failure);
}

TEST_F(ExecutorOnGpu, AWaitInsideAKernelThatGivesUpPoisonsTheStep) {
  const auto executor = executor_on(kFirstGpu);
  EXPECT_EQ(executor->sample(plan_of(prompts(), 0, {})).size(), kSequences);
  PinnedBuffer seen(sizeof(int) * kWaitingBlocks * kWaitingThreads);
  KernelWaits waits = waits_of(executor->stream(), "a test");
  waits.limit.nanoseconds = 30'000'000;
  if constexpr (kHaveCuda)
    enqueue_wait(PhaseEnds::never, WaitKind::deadline, waits, reinterpret_cast<int*>(seen.data()), executor->stream());
  std::string error = "none";
  try {
    executor->sample(plan_of({{1}, {1}, {1}}, kPromptTokens, {}));
  } catch (const Timeout& timeout) {
    error = timeout.what();
  }
  EXPECT_THAT(
      error, testing::AllOf(testing::HasSubstr("kernel a test: block "), testing::HasSubstr("expected 0, observed 1")));
  EXPECT_EQ(executor->num_in_flight(), 0);
  EXPECT_THROW(executor->sample(plan_of({{1}, {1}, {1}}, kPromptTokens, {})), Failure);
}

}  // namespace
}  // namespace heddle
