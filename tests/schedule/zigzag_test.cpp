#include "schedule/zigzag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace heddle::schedule {
namespace {

TEST(Zigzag, EveryPositionHasAPlaceAndCountsAgree) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const int block : {1, 2, 7, 32})
      EXPECT_TRUE(every_position_has_a_place({ranks, block}, 5 * ranks * block + 3)) << ranks << " ranks of " << block;
}

TEST(Zigzag, CausalWorkIsEqualAfterPairsOfRounds) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const int block : {1, 3, 32}) EXPECT_TRUE(causal_work_is_equal({ranks, block}, 2));
}

// The most that a rank has to do, relative to the average, where positions [begin, end) ask.
double imbalance(const Zigzag& s, int begin, int end) {
  std::vector<double> pairs;
  for (int rank = 0; rank < s.ranks; ++rank) pairs.push_back(static_cast<double>(causal_pairs(s, rank, begin, end)));
  const double average = std::accumulate(pairs.begin(), pairs.end(), 0.0) / s.ranks;
  return *std::ranges::max_element(pairs) / average - 1;
}

constexpr double kBalanced = 0.05;
constexpr int kPage = 32;  // the engine's, on the CPU

// From two pairs of rounds on, at any length.
TEST(Zigzag, APromptsCausalWorkIsBalancedWithin5Percent) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const Zigzag s{ranks, kPage};
    for (int length = 4 * ranks * kPage; length <= 40 * ranks * kPage; length += 37)
      EXPECT_LE(imbalance(s, 0, length), kBalanced) << ranks << " ranks, " << length << " tokens";
  }
}

// Chunks of 512 tokens, as the engine computes a prompt.
TEST(Zigzag, AChunksCausalWorkIsBalancedWithin5Percent) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (int begin = 0; begin < 16384; begin += 512)
      EXPECT_LE(imbalance({ranks, kPage}, begin, begin + 512), kBalanced) << ranks << " ranks, from " << begin;
}

// What it is for: without turning back, the first rank has the earlier keys of every round, which more queries see.
TEST(Zigzag, TurnsBecauseAPlainRoundWouldNotBeBalanced) {
  constexpr int kRanks = 4, kLength = 2 * kRanks * kPage;
  std::int64_t first = 0, last = 0;
  for (int key = 0; key < kLength; ++key) {
    const int owner = key / kPage % kRanks;
    if (owner == 0) first += kLength - key;
    if (owner == kRanks - 1) last += kLength - key;
  }
  EXPECT_GT(static_cast<double>(first) / static_cast<double>(last), 1.5);
  EXPECT_EQ(imbalance({kRanks, kPage}, 0, kLength), 0);
}

}  // namespace
}  // namespace heddle::schedule
