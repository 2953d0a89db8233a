#include "kernels/sampling/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, DependsOnSeedPositionAndIndexAlone) {
  EXPECT_EQ(uniform(1, 2, 3), uniform(1, 2, 3));
  EXPECT_NE(uniform(1, 2, 3), uniform(2, 2, 3));
  EXPECT_NE(uniform(1, 2, 3), uniform(1, 3, 3));
  EXPECT_NE(uniform(1, 2, 3), uniform(1, 2, 4));
  EXPECT_NE(uniform(1, 2, 3), uniform((std::uint64_t{1} << 32) + 1, 2, 3));
}

TEST(Uniform, FillsTheOpenIntervalEvenly) {
  constexpr int kDraws = 200'000;
  constexpr int kBins = 50;
  int counts[kBins] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform(7, static_cast<std::uint32_t>(i / 1000), static_cast<std::uint32_t>(i % 1000));
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<int>(u * kBins)];
  }
  double chi_square = 0;
  for (const int count : counts) chi_square += std::pow(count - kDraws / kBins, 2) / (kDraws / kBins);
  EXPECT_LT(chi_square, 94);  // 49 degrees of freedom: exceeded once in 10 000
}

}  // namespace
}  // namespace heddle
