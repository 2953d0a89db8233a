#include "kernels/cuda_operands.h"
#include "kernels/sampling/argmax.h"

namespace heddle {
namespace {

using ArgmaxOnGpu = OnGpu;

// Rows of all lengths, with ties within and between the blocks that share a row, and rows that are unsound somewhere.
TEST_F(ArgmaxOnGpu, GivesTheTokensOfTheCpu) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t vocab_size : {1, 2, 31, 1000, 8191, 8193, 65537, 128256}) {
    constexpr int kRows = 12;
    Rows logits(kRows, vocab_size, 3);
    std::mt19937 random(7);
    const auto any = [&] { return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(vocab_size)); };
    for (int r = 0; r < kRows; ++r) {
      const std::vector<float> values = random_floats(static_cast<std::size_t>(vocab_size), static_cast<unsigned>(r));
      std::copy(values.begin(), values.end(), logits.row(r));
      if (r % 4 == 1)
        for (int i = 0; i < 40; ++i) logits.row(r)[any()] = 50;
    }
    std::fill_n(logits.row(3), vocab_size, -kInfinity);
    std::fill_n(logits.row(4), vocab_size, -1.0f);
    std::fill_n(logits.row(5), vocab_size, -kInfinity);
    logits.row(5)[any()] = -3e38f;
    logits.row(6)[any()] = kPoison;
    logits.row(7)[any()] = kInfinity;
    std::vector<std::int32_t> expected(kRows);
    on_cpu(1, [&](Stream& stream) { argmax({.logits = logits, .tokens = expected.data()}, stream); });
    const GpuRows there(logits, DType::float32, {.gap = 1});
    GpuArray<std::int32_t> tokens(std::vector<std::int32_t>(kRows, 99));
    on_gpu([&](Stream& stream) { argmax({.logits = there, .tokens = tokens.data()}, stream); });
    EXPECT_EQ(tokens.values(), expected) << vocab_size;
  }
}

}  // namespace
}  // namespace heddle
