#include "schedule/reduce_order.h"

#include <gtest/gtest.h>

#include <random>

namespace heddle::schedule {
namespace {

enum class Counts : std::uint8_t { uneven, even };

template <int kRanks>
void expect_no_circle_of_waits(std::mt19937& random, Counts counts) {
  ReduceTeam<kRanks> team{};
  for (int rank = 0; rank < kRanks; ++rank) {
    team.tiles[rank] = counts == Counts::even && rank > 0 ? team.tiles[0] : static_cast<int>(random() % 9);
    team.at_once[rank] = 1 + static_cast<int>(random() % 12);
  }
  EXPECT_TRUE(every_tile_multiplied_once(team)) << ::testing::PrintToString(team.tiles);
  EXPECT_TRUE(no_product_comes_late(team)) << ::testing::PrintToString(team.tiles);
}

TEST(ReduceOrder, MultipliesEachTileOnceAndWaitsForNoLaterStep) {
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    for (const Counts counts : {Counts::uneven, Counts::even}) {
      expect_no_circle_of_waits<1>(random, counts);
      expect_no_circle_of_waits<2>(random, counts);
      expect_no_circle_of_waits<3>(random, counts);
      expect_no_circle_of_waits<4>(random, counts);
    }
  }
}

TEST(ReduceOrder, OwnTilesFollowARoundBehindThoseOfOthers) {
  const ReduceOrder order{.ranks = 2, .others = 6, .own = 6, .at_once = 3, .even = true};
  std::string steps;
  for (int step = 0; step < order.steps(); ++step) steps += order.at(step).own ? 'a' : 'A';
  EXPECT_EQ(steps, "AAAaAaAaAaaa");
}

// A block that takes every fourth step would otherwise have own tiles alone.
TEST(ReduceOrder, OwnTilesChangePlacesWithOthersFromRoundToRound) {
  const ReduceOrder order{.ranks = 2, .others = 8, .own = 8, .at_once = 4, .even = true};
  std::string steps;
  for (int step = 0; step < order.steps(); ++step) steps += order.at(step).own ? 'a' : 'A';
  EXPECT_EQ(steps, "AAAAaAaAAaAaaaaa");
}

}  // namespace
}  // namespace heddle::schedule
