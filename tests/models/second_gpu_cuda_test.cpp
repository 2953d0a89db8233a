// A model on the second GPU while the first is current: each launch makes its own device current, and what is queried and
// prepared once is so once a device. Skipped below two GPUs.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "base/cuda_call.h"
#include "base/lane.h"
#include "gpu_here.h"
#include "models/computed_steps.h"

namespace heddle {
namespace {

constexpr Device kSecondGpu{DeviceKind::cuda, 1};

struct OnTwoGpus {
  const char* test;
  const char* model;
  DecodeChoice decode{};
};

constexpr OnTwoGpus kOnTwoGpus[] = {
    {"Separate", "synth:llama-3-8b,layers=2"},
    {"Streamed", "synth:llama-3-8b,layers=2", {.form = DecodeChoice::Form::streamed}},
    {"InClusters", "synth:llama-3-8b,layers=2", {.form = DecodeChoice::Form::clusters, .cluster = 4}},
    {"Latents", "synth:deepseek-v2-lite,layers=2"},
    {"LatentsInClusters", "synth:deepseek-v2-lite,layers=2", {.form = DecodeChoice::Form::clusters, .cluster = 4}},
};

class SecondGpu : public testing::TestWithParam<OnTwoGpus> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    if (const auto count = discover_gpus().gpus.size(); count < 2)
      GTEST_SKIP() << "needs two GPUs, there are " << count;
    if (num_sms_of(kFirstGpu) != num_sms_of(kSecondGpu)) GTEST_SKIP() << "needs two GPUs with as many SMs";
  }
};
INSTANTIATE_TEST_SUITE_P(, SecondGpu, testing::ValuesIn(kOnTwoGpus),
                         [](const auto& test) { return std::string(test.param.test); });

// Norms, GEMMs, attention in chunks and of decode steps, whether fused or not, and the choice of tokens.
TEST_P(SecondGpu, ComputesTheBitsOfTheFirstWhileTheFirstIsCurrent) {
  const CurrentDevice current(kFirstGpu.index);
  const auto compute_on = [](Device device) {
    const auto& [test, model, decode] = GetParam();
    LlamaRunner runner = synthetic_runner(model, course_options(device, 0, decode));
    const Computed computed = compute_everything(runner, decode);
    EXPECT_EQ(runner.num_fused() > 0, decode.fused()) << device.index;
    return computed;
  };
  const Computed on_second = compute_on(kSecondGpu);  // before the first has prepared any kernel, if run alone
  int still_current = -1;
  ASSERT_EQ(cudaGetDevice(&still_current), cudaSuccess);
  EXPECT_EQ(still_current, kFirstGpu.index);
  EXPECT_EQ(difference(on_second, compute_on(kFirstGpu)), "");
}

}  // namespace
}  // namespace heddle
