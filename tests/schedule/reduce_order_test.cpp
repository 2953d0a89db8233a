#include "schedule/reduce_order.h"

#include <gtest/gtest.h>

#include <random>

namespace heddle::schedule {
namespace {

template <int kRanks>
void expect_no_circle_of_waits(std::mt19937& random) {
  ReduceTeam<kRanks> team{};
  for (int rank = 0; rank < kRanks; ++rank) {
    team.tiles[rank] = static_cast<int>(random() % 9);
    team.at_once[rank] = 1 + static_cast<int>(random() % 12);
  }
  EXPECT_TRUE(every_tile_multiplied_once(team)) << ::testing::PrintToString(team.tiles);
  EXPECT_TRUE(no_product_comes_late(team)) << ::testing::PrintToString(team.tiles);
}

TEST(ReduceOrder, MultipliesEachTileOnceAndWaitsForNoLaterStep) {
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    expect_no_circle_of_waits<1>(random);
    expect_no_circle_of_waits<2>(random);
    expect_no_circle_of_waits<3>(random);
    expect_no_circle_of_waits<4>(random);
  }
}

TEST(ReduceOrder, OwnTilesFollowARoundBehindThoseOfOthers) {
  const ReduceOrder order{.ranks = 2, .others = 6, .own = 6, .at_once = 3};
  std::string steps;
  for (int step = 0; step < order.steps(); ++step) steps += order.at(step).own ? 'a' : 'A';
  EXPECT_EQ(steps, "AAAaAaAaAaaa");
}

}  // namespace
}  // namespace heddle::schedule
