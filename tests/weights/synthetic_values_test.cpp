#include "weights/synthetic_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace heddle {
namespace {

template <class T>
std::vector<T> filled(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType dtype) {
  std::vector<T> values(count);
  fill_synthetic(tensor, first, count, dtype, values.data());
  return values;
}

// Lines from tools/goldens/make_synthetic_values.py, an independent implementation of the definition.
TEST(SyntheticValues, AreThoseOfTheirDefinition) {
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/data/synthetic/values.txt");
  int num_values = 0;
  for (std::string line; std::getline(file, line); ++num_values) {
    std::istringstream fields(line);
    std::string shape;
    std::string name;
    std::uint64_t index = 0;
    double deviation = 0;
    float offset = 0;
    std::uint32_t expected = 0;
    std::uint32_t expected_bfloat16 = 0;
    std::uint32_t expected_float16 = 0;
    fields >> shape >> name >> index >> deviation >> offset >> std::hex >> expected >> expected_bfloat16 >>
        expected_float16;
    ASSERT_TRUE(fields) << line;
    const SyntheticTensor tensor{
        .key = synthetic_key(shape, name), .scale = static_cast<float>(deviation / kUnitDeviation), .offset = offset};
    EXPECT_EQ(std::bit_cast<std::uint32_t>(synthetic_value(tensor, index)), expected) << line;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(filled<float>(tensor, index, 1, DType::float32)[0]), expected) << line;
    EXPECT_EQ(filled<std::uint16_t>(tensor, index, 1, DType::bfloat16)[0], expected_bfloat16) << line;
    EXPECT_EQ(filled<std::uint16_t>(tensor, index, 1, DType::float16)[0], expected_float16) << line;
  }
  EXPECT_GT(num_values, 300);
}

struct FillCase {
  std::uint64_t first;
  std::size_t count;
  float scale;
  float offset;
};

TEST(SyntheticValues, AreFilledAsTheReferenceSays) {
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 32;
  for (const FillCase& c : {FillCase{0, 5000, 3e-7f, 0}, FillCase{12345, 1024, 2e-6f, 1}, FillCase{7, 1, 1e-5f, 0},
                            FillCase{kHigh - 1500, 3000, 1e-6f, 0},   // the counter's high half changes within
                            FillCase{5 * kHigh - 1, 2, 1e-6f, 0},     // and at a block's edge
                            FillCase{99, 4096, 1e-9f, 0},             // below float16's normal numbers
                            FillCase{0, 4096, 1.2e-9f, 0x1p-14f}}) {  // on both sides of the smallest of them
    const SyntheticTensor tensor{.key = synthetic_key("shape", "tensor"), .scale = c.scale, .offset = c.offset};
    const auto floats = filled<float>(tensor, c.first, c.count, DType::float32);
    const auto bfloats = filled<std::uint16_t>(tensor, c.first, c.count, DType::bfloat16);
    const auto halves = filled<std::uint16_t>(tensor, c.first, c.count, DType::float16);
    for (std::size_t i = 0; i < c.count; ++i) {
      const float expected = synthetic_value(tensor, c.first + i);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(expected)) << c.first << "+" << i;
      ASSERT_EQ(bfloats[i], to_bfloat16(expected).bits) << c.first << "+" << i;
      ASSERT_EQ(halves[i], to_float16(expected).bits) << c.first << "+" << i;
    }
  }
}

TEST(SyntheticValues, WriteNothingBehindTheirEnd) {
  std::vector<std::uint16_t> values(1030, 0xabcd);
  fill_synthetic({.key = {1, 2}, .scale = 1}, 0, 1025, DType::bfloat16, values.data());
  for (std::size_t i = 1025; i < values.size(); ++i) EXPECT_EQ(values[i], 0xabcd);
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double correlation = 0;  // of each with that `lag` before
};

Moments moments_of(const std::vector<float>& x, const std::vector<float>& y, std::size_t lag) {
  double sum = 0;
  double squares = 0;
  double products = 0;
  const std::size_t count = x.size() - lag;
  for (std::size_t i = 0; i < count; ++i) {
    sum += x[i];
    squares += double{x[i]} * x[i];
    products += double{x[i]} * y[i + lag];
  }
  const double n = static_cast<double>(count);
  return {sum / n, std::sqrt(squares / n), products / squares};
}

// Bounds: five standard errors for 2^20 independent numbers, 1/1024 each, of a mean or a correlation.
TEST(SyntheticValues, LookIndependent) {
  constexpr double kBound = 5.0 / 1024;
  const auto values_of = [](std::string_view name) {
    return filled<float>({.key = synthetic_key("llama-3-8b", name), .scale = static_cast<float>(1 / kUnitDeviation)}, 0,
                         1 << 20, DType::float32);
  };
  const auto values = values_of("model.layers.3.mlp.up_proj.weight");
  for (const std::size_t lag : {1, 2, 3, 64, 1024, 2048, 4096, 14336, 65536}) {
    const Moments moments = moments_of(values, values, lag);
    EXPECT_NEAR(moments.mean, 0, kBound) << lag;
    EXPECT_NEAR(moments.deviation, 1, kBound) << lag;
    EXPECT_NEAR(moments.correlation, 0, kBound) << lag;
  }
  for (const char* other : {"model.layers.4.mlp.up_proj.weight", "model.layers.3.mlp.gate_proj.weight"})
    for (const std::size_t lag : {0, 1, 4096})
      EXPECT_NEAR(moments_of(values, values_of(other), lag).correlation, 0, kBound);
}

TEST(SyntheticValues, UseEveryBitOfTheirWordsEqually) {
  constexpr int kCount = 1 << 18;
  const SyntheticKey key = synthetic_key("qwen3-8b", "lm_head.weight");
  std::vector<int> ones(32);
  std::vector<int> buckets(1 << 10);  // by the highest bits: uniform to 5 deviations of a Poisson count of 256
  for (std::uint64_t index = 0; index < kCount; ++index) {
    const std::uint32_t word = synthetic_word(key, index);
    for (std::size_t bit = 0; bit < 32; ++bit) ones[bit] += static_cast<int>(word >> bit & 1u);
    ++buckets[word >> 22];
  }
  for (const int count : ones) EXPECT_NEAR(count, kCount / 2, 5 * 256);
  double chi_squared = 0;
  for (const int count : buckets) chi_squared += (count - 256.0) * (count - 256.0) / 256;
  EXPECT_NEAR(chi_squared, 1023, 5 * std::sqrt(2 * 1023.0));
}

}  // namespace
}  // namespace heddle
