// Steps of an executor that may hold some SMs of a GPU only, of models of every family. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/lane.h"
#include "gpu_here.h"
#include "kernels/sm_holder.h"
#include "models/computed_steps.h"
#include "models/llama_heads.h"
#include "models/llama_runner.h"
#include "models/recorded_kernels.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr int kBudgets[] = {8, 16, 66, 100};

LlamaRunner heads_runner(const char* name, int num_sms) {
  const TemporaryFolder folder;
  LlamaHeads(name).write(folder.path());
  return {folder.path(), course_options(kFirstGpu, num_sms)};
}

class LanesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    if (num_sms_of(kFirstGpu) <= 100) GTEST_SKIP() << "the GPU has 100 SMs or fewer";
  }

  // All kernels and graphs are there before SMs are held: loading one may wait for what runs. The second run says whether
  // bits depend on the pages that a sequence got, or on a step's being replayed; the third, on who holds the other SMs.
  static void expect_same_beside_a_spinner(LlamaRunner& runner, int budget, const DecodeChoice& decode = {}) {
    const Computed expected = compute_everything(runner, decode);
    EXPECT_EQ(difference(expected, compute_everything(runner, decode)), "") << budget << " SMs, nobody beside";
    if constexpr (kHaveCuda) {
      const SmHolder holder(num_sms_of(kFirstGpu) - budget);
      EXPECT_EQ(difference(expected, compute_everything(runner, decode)), "") << budget << " SMs";
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

// A model with real widths, and how its decode steps are to be fused.
struct RealWidths {
  const char* test;
  const char* model;
  DecodeChoice decode{};
  int fused_from = 0;  // SMs: with fewer, no decode step is fused
};

constexpr int kNever = 1000;

// Clusters need so many SMs that one GPC has room for them; the fused block of latents needs the whole device.
constexpr RealWidths kRealWidths[] = {
    {"Llama", "synth:llama-3-8b,layers=2"},
    {"Experts", "synth:mixtral-8x7b,layers=2"},
    {"Latents", "synth:deepseek-v2-lite,layers=2"},
    {"LlamaStreamed", "synth:llama-3-8b,layers=2", {.form = DecodeChoice::Form::streamed}, 8},
    {"LlamaInClustersOf4", "synth:llama-3-8b,layers=2", {.form = DecodeChoice::Form::clusters, .cluster = 4}, 66},
    {"LlamaInClustersOf8", "synth:llama-3-8b,layers=2", {.form = DecodeChoice::Form::clusters, .cluster = 8}, 66},
    {"LlamaInClustersOf16", "synth:llama-3-8b,layers=2", {.form = DecodeChoice::Form::clusters, .cluster = 16}, kNever},
    {"LatentsInClustersOf4",
     "synth:deepseek-v2-lite,layers=2",
     {.form = DecodeChoice::Form::clusters, .cluster = 4},
     kNever},
};

class LanesOfRealWidths : public LanesTest, public testing::WithParamInterface<RealWidths> {};
INSTANTIATE_TEST_SUITE_P(, LanesOfRealWidths, testing::ValuesIn(kRealWidths),
                         [](const auto& test) { return std::string(test.param.test); });

TEST_P(LanesOfRealWidths, StepsEndWithTheSameBitsWhileOthersHoldTheOtherSms) {
  const auto& [test, model, decode, fused_from] = GetParam();
  for (const int budget : kBudgets) {
    LlamaRunner runner = synthetic_runner(model, course_options(kFirstGpu, budget, decode));
    expect_same_beside_a_spinner(runner, budget, decode);
    EXPECT_EQ(runner.num_fused() > 0, decode.fused() && budget >= fused_from) << budget << " SMs";
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
