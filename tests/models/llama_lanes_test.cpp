// Steps of an executor that may hold some SMs of a GPU only. Skipped without a GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/lane.h"
#include "gpu_here.h"
#include "kernels/sm_holder.h"
#include "models/llama_heads.h"
#include "models/llama_runner.h"
#include "models/recorded_kernels.h"
#include "temporary_folder.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr int kBudgets[] = {8, 16, 66, 100};

LlamaRunner::Options options_with(int num_sms) {
  return {.page_size = 16,   // the smallest that the fast kernels take
          .num_pages = 192,  // of three runs of all steps
          .max_sequences = 8,
          .max_tokens = 600,
          .num_sms = num_sms,
          .device = kFirstGpu};
}

LlamaRunner heads_runner(const char* name, int num_sms) {
  const TemporaryFolder folder;
  LlamaHeads(name).write(folder.path());
  return {folder.path(), options_with(num_sms)};
}

std::vector<std::int32_t> tokens_from(int first, int count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = (first + 31 * i) % 250;
  return tokens;
}

// Sequences of a step and the last row of logits of each.
class Batch {
 public:
  Batch(LlamaRunner& runner, int size) : runner_(runner) {
    for (int i = 0; i < size; ++i) sequences_.push_back(runner.sequence());
  }

  void step(const std::vector<int>& counts) {
    std::vector<LlamaRunner::Chunk> chunks;
    for (std::size_t i = 0; i < counts.size(); ++i)
      chunks.push_back({&sequences_[i], tokens_from(static_cast<int>(i + sequences_[i].tokens.size()), counts[i])});
    const auto rows = runner_.step(chunks);
    std::size_t end = 0;
    for (const int count : counts) logits_.push_back(rows[(end += static_cast<std::size_t>(count)) - 1]);
  }

  const std::vector<std::vector<float>>& logits() const { return logits_; }

 private:
  LlamaRunner& runner_;
  std::vector<LlamaRunner::Sequence> sequences_;
  std::vector<std::vector<float>> logits_;
};

struct Computed {
  std::vector<std::vector<float>> alone, together;
  std::vector<std::int32_t> greedy, sampled;
};

// Prefill, decode of one sequence and of five, and both in one step. A decode step of a size is computed as it is, then
// recorded, then replayed, by turns in two slots.
Computed compute_everything(LlamaRunner& runner) {
  constexpr int kDecodeSteps = 6;
  Batch one(runner, 1), five(runner, 5);
  one.step({300});
  for (int i = 0; i < kDecodeSteps; ++i) one.step({1});
  five.step({300, 1, 62, 125, 17});
  for (int i = 0; i < kDecodeSteps; ++i) five.step({1, 1, 1, 1, 1});
  five.step({1, 70, 1, 1, 1});
  return {.alone = one.logits(),
          .together = five.logits(),
          .greedy = runner.choose({}),
          .sampled = runner.choose({.temperature = 0.8, .top_p = 0.9, .seed = 7})};
}

// Which rows of two lists of logits differ, and by how much; empty if none. Bits are compared, so a NaN is itself.
std::string difference(const char* what, const std::vector<std::vector<float>>& a,
                       const std::vector<std::vector<float>>& b) {
  std::string found;
  for (std::size_t row = 0; row < a.size(); ++row) {
    std::size_t differ = 0, nans = 0;
    float most = 0, largest = 0;
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      nans += std::isnan(a[row][i]) || std::isnan(b[row][i]) ? 1 : 0;
      largest = std::max(largest, std::abs(a[row][i]));
      if (std::bit_cast<std::uint32_t>(a[row][i]) == std::bit_cast<std::uint32_t>(b[row][i])) continue;
      ++differ;
      most = std::max(most, std::abs(a[row][i] - b[row][i]));
    }
    if (differ > 0)
      found += fmt::format("{}: row {} of {} has {} other logits of {} (by {} at most, the largest is {}), {} NaN\n",
                           what, row, a.size(), differ, a[row].size(), most, largest, nans);
  }
  return found;
}

std::string difference(const Computed& a, const Computed& b) {
  if (std::string found = difference("one sequence", a.alone, b.alone); !found.empty()) return found;
  if (std::string found = difference("five sequences", a.together, b.together); !found.empty()) return found;
  if (a.greedy != b.greedy) return "the tokens chosen greedily";
  return a.sampled == b.sampled ? "" : "the tokens sampled";
}

class LanesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    if (num_sms_of(kFirstGpu) <= 100) GTEST_SKIP() << "the GPU has 100 SMs or fewer";
  }

  // All kernels and graphs are there before SMs are held: loading one may wait for what runs. The second run says whether
  // bits depend on the pages that a sequence got, or on a step's being replayed; the third, on who holds the other SMs.
  static void expect_same_beside_a_spinner(LlamaRunner& runner, int budget) {
    const Computed expected = compute_everything(runner);
    EXPECT_EQ(difference(expected, compute_everything(runner)), "") << budget << " SMs, nobody beside";
    if constexpr (kHaveCuda) {
      const SmHolder holder(num_sms_of(kFirstGpu) - budget);
      EXPECT_EQ(difference(expected, compute_everything(runner)), "") << budget << " SMs";
      EXPECT_TRUE(holder.still_holds()) << "a step on " << budget << " SMs waited until the others were free";
    }
  }
};

using LlamaLanes = LanesTest;

TEST_F(LlamaLanes, StepsEndWithTheSameBitsWhileOthersHoldTheOtherSms) {
  for (const char* name : {"llama-128", "mistral-128", "qwen3-128"})
    for (const int budget : kBudgets) {
      SCOPED_TRACE(name);
      LlamaRunner runner = heads_runner(name, budget);
      expect_same_beside_a_spinner(runner, budget);
    }
}

TEST_F(LlamaLanes, StepsOfRealWidthsEndWhileOthersHoldTheOtherSms) {
  const auto name = parse_synthetic_name("synth:llama-3-8b,layers=2");
  ASSERT_TRUE(name.has_value());
  const SyntheticModel source(*name);
  for (const int budget : kBudgets) {
    LlamaRunner runner(load_model(source, {.device = kFirstGpu}), options_with(budget));
    expect_same_beside_a_spinner(runner, budget);
  }
}

// Where a test above fails, this one says which kernel it is.
TEST_F(LlamaLanes, NoKernelWaitsForSmsThatOthersHold) {
  constexpr int kBudget = 8;
  const std::vector<int> steps[] = {{300}, {300, 1, 62, 125, 17}, {1}, {1, 1, 1, 1, 1}, {1, 70, 1, 1, 1}};
  for (const char* name : {"llama-128", "mistral-128", "qwen3-128"})
    for (const std::vector<int>& counts : steps)
      for (const SamplingParams& params : {SamplingParams{}, {.temperature = 0.8, .top_p = 0.9, .seed = 7}}) {
        LlamaRunner runner = heads_runner(name, kBudget);
        Batch batch(runner, static_cast<int>(counts.size()));
        batch.step(counts);
        runner.choose(params);
        std::string waits;
        if constexpr (kHaveCuda) {
          const SmHolder holder(num_sms_of(kFirstGpu) - kBudget);
          waits = first_that_waits(runner.executor().stream(), [&] { runner.start_last_step(); });
        }
        EXPECT_EQ(waits, "") << name << ", " << counts.size() << " sequences";
      }
}

// What an executor launches for a step with so many new tokens of each sequence, up to the choice of tokens.
std::vector<RecordedKernel> kernels_of_step(int budget, const std::vector<int>& counts) {
  LlamaRunner runner = heads_runner("llama-128", budget);
  Batch batch(runner, static_cast<int>(counts.size()));
  batch.step(counts);
  runner.choose({});  // which loads what chooses
  std::vector<RecordedKernel> kernels;
  if constexpr (kHaveCuda) kernels = recorded_kernels(runner.executor().stream(), [&] { runner.start_last_step(); });
  return kernels;
}

std::vector<std::string> names_of(const std::vector<RecordedKernel>& kernels) {
  std::vector<std::string> names;
  for (const RecordedKernel& kernel : kernels) names.push_back(kernel.name);
  return names;
}

// As a function's name stands in a mangled one, where the name of a source file may stand as well.
std::string mangled(const std::string& name) {
  return std::to_string(name.size()) + name;
}

bool is_any_of(const RecordedKernel& kernel, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names,
                             [&](const char* name) { return kernel.name.find(mangled(name)) != std::string::npos; });
}

TEST_F(LlamaLanes, NoKernelOfAStepHasMoreBlocksThanTheSmsHold) {
  for (const std::vector<int>& counts : {std::vector{300, 200, 90}, {1}, {1, 1, 1, 1, 1}})
    for (const int budget : kBudgets) {
      const std::vector<RecordedKernel> kernels = kernels_of_step(budget, counts);
      EXPECT_THAT(names_of(kernels), Contains(HasSubstr(mangled("embedding_packs"))));
      EXPECT_THAT(names_of(kernels), Contains(HasSubstr(mangled("argmax_rows"))));
      EXPECT_THAT(names_of(kernels),
                  Contains(HasSubstr(mangled(counts[0] > 1 ? "attention_prefill" : "attention_decode"))));
      for (const RecordedKernel& kernel : kernels) {
        EXPECT_LE(kernel.blocks, std::max(kernel.cluster, budget * kernel.blocks_of_sm)) << kernel.name;
        if (is_any_of(kernel, {"linear_stream", "attention_prefill", "attention_decode", "plan_decode_blocks"})) {
          EXPECT_LE(kernel.blocks, budget) << kernel.name;
        }
      }
    }
}

// Or the test above would pass if nobody heeded a budget.
TEST_F(LlamaLanes, AStepOfTheWholeDeviceHasMoreBlocksThanAFewSmsHold) {
  constexpr int kFew = 16;
  const auto more_than_few = [](const RecordedKernel& kernel) { return kernel.blocks > kFew * kernel.blocks_of_sm; };
  for (const char* name : {"embedding_packs", "rope_kv_write_packs", "attention_prefill"}) {
    std::vector<RecordedKernel> kernels = kernels_of_step(0, {300, 200, 90});
    std::erase_if(kernels, [&](const RecordedKernel& kernel) { return !is_any_of(kernel, {name}); });
    EXPECT_TRUE(!kernels.empty() && std::ranges::all_of(kernels, more_than_few)) << name;
  }
  for (const RecordedKernel& kernel : kernels_of_step(0, {1}))
    if (is_any_of(kernel, {"linear_stream", "attention_decode"})) {
      EXPECT_GT(kernel.blocks, kFew) << kernel.name;
    }
}

TEST_F(LlamaLanes, ABudgetBeyondTheDeviceIsRefused) {
  const int all = num_sms_of(kFirstGpu);
  EXPECT_EQ(heads_runner("llama-128", 0).executor().lane().num_sms, all);
  EXPECT_EQ(heads_runner("llama-128", all).executor().lane().num_sms, all);
  for (const int wrong : {-1, all + 1}) EXPECT_THROW(heads_runner("llama-128", wrong), InvalidArgument) << wrong;
}

}  // namespace
}  // namespace heddle
