// GPU properties beyond the goldens: graphs, padded steps, real widths. Skipped without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/executor.h"
#include "gpu_here.h"
#include "models/llama_runner.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using LogitRows = std::vector<std::vector<float>>;

class LlamaOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

double largest_distance(const LogitRows& a, const LogitRows& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    for (std::size_t j = 0; j < std::min(a[i].size(), b[i].size()); ++j) {
      const double distance = std::abs(static_cast<double>(a[i][j]) - b[i][j]);
      if (!(distance <= largest)) largest = distance;  // NaN sticks
    }
  return largest;
}

// Rows of `count` sequences that decode side by side for `steps` steps after prompts of unequal lengths.
LogitRows decode_together(LlamaRunner& runner, int count, int steps) {
  std::vector<LlamaRunner::Sequence> sequences;
  for (int i = 0; i < count; ++i) sequences.push_back(runner.sequence());
  std::vector<LlamaRunner::Chunk> chunks;
  for (int i = 0; i < count; ++i) {
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(i % 4 + 1));
    for (std::size_t j = 0; j < prompt.size(); ++j)
      prompt[j] = static_cast<std::int32_t>((7 * i + 13 * static_cast<int>(j)) % 250);
    chunks.push_back({&sequences[static_cast<std::size_t>(i)], prompt});
  }
  LogitRows rows = runner.step(chunks);
  for (int step = 0; step < steps; ++step) {
    chunks.clear();
    for (int i = 0; i < count; ++i)
      chunks.push_back({&sequences[static_cast<std::size_t>(i)], {(31 * i + 5 * step) % 250}});
    for (auto& row : runner.step(chunks)) rows.push_back(std::move(row));
  }
  return rows;
}

// The first decode step of a size is computed as it is, the second is recorded, the others replay the record; above
// sixteen, sequences are added.
TEST_F(LlamaOnGpu, DecodingAgreesWithTheCpuAtEveryBatch) {
  for (const int count : {1, 2, 3, 9, 16, 17, 21}) {
    constexpr int kSteps = 5;
    const LlamaRunner::Options options{.threads = 2, .page_size = 16, .num_pages = 64, .max_sequences = 24};
    LlamaRunner::Options on_gpu = options;
    on_gpu.device = kFirstGpu;
    LlamaRunner cpu(golden_folder("gqa"), options), gpu(golden_folder("gqa"), on_gpu);
    EXPECT_LE(largest_distance(decode_together(gpu, count, kSteps), decode_together(cpu, count, kSteps)), 1e-4)
        << count;
  }
}

TEST_F(LlamaOnGpu, TheSameStepsGiveTheSameBits) {
  for (const char* name : {"gqa", "gqa-bfloat16", "tied-float16"}) {
    LlamaRunner::Options options{.page_size = 16, .num_pages = 64, .max_sequences = 24, .device = kFirstGpu};
    LlamaRunner first(golden_folder(name), options), second(golden_folder(name), options);
    const LogitRows expected = decode_together(first, 19, 4);
    EXPECT_EQ(decode_together(second, 19, 4), expected) << name;
    EXPECT_EQ(decode_together(first, 19, 4), expected) << name;  // in other pages, all steps replayed
  }
}

// Two layers of real widths: kernels choose their ways by shape. Weights and activations are bfloat16 on both sides;
// the GPU also rounds what lies between projections, which at logits with a deviation near 3 costs hundredths.
TEST_F(LlamaOnGpu, RealWidthsAgreeWithTheCpu) {
  const auto name = parse_synthetic_name("synth:llama-3-8b,layers=2");
  ASSERT_TRUE(name.has_value());
  const SyntheticModel source(*name);
  const ExecutorLimits limits{
      .step = {.max_tokens = 64, .max_sequences = 2, .max_samples = 64, .max_pages_per_sequence = 2},
      .page_size = 64,
      .num_pages = 4};
  Executor cpu(load_model(source, {}), limits, 8);
  Executor gpu(load_model(source, {.device = kFirstGpu}), limits, 1);
  StepPlan plan;
  const auto add = [&](int first, int count) {
    plan.clear();
    plan.sequences.push_back({.num_tokens = count, .context_len = first + count, .first_page = 0, .num_pages = 2});
    plan.pages = {1, 3};
    for (int i = 0; i < count; ++i) {
      plan.tokens.push_back((first + i) * 1009 % 128256);
      plan.positions.push_back(first + i);
      plan.samples.push_back({.row = i, .position = first + i + 1, .params = {}});
    }
  };
  double largest = 0, sum = 0;
  std::int64_t count = 0;
  int same_argmax = 0, rows = 0;
  const auto compare = [&] {
    const Tensor a = cpu.run(plan);
    const Tensor b = gpu.run(plan);
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const auto x = logits_row(a, row), y = logits_row(b, row);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double distance = std::abs(static_cast<double>(x[i]) - y[i]);
        if (!(distance <= largest)) largest = distance;
        sum += distance * distance;
        ++count;
      }
      same_argmax += std::ranges::max_element(x) - x.begin() == std::ranges::max_element(y) - y.begin();
      ++rows;
    }
  };
  add(0, 40);
  compare();
  for (int position = 40; position < 44; ++position) {
    add(position, 1);
    compare();
  }
  const double deviation = std::sqrt(sum / static_cast<double>(count));
  std::printf("largest difference %.4f, root of the mean square %.5f, the same argmax in %d of %d\n", largest,
              deviation, same_argmax, rows);
  EXPECT_LE(deviation, 0.03);
  EXPECT_LE(largest, 0.3);
  EXPECT_GE(same_argmax, rows - 2);
}

}  // namespace
}  // namespace heddle
