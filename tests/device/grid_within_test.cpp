#include "device/grid_within.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace heddle {
namespace {

// Sizes around each other, so that either axis is the one that does not fit.
const std::vector<unsigned> kSizes{1, 2, 7, 8, 9, 16, 64, 127, 128, 129, 300, 8192, 65535};

TEST(GridWithin, NeverHasMoreBlocksThanTheSmsHold) {
  for (const int num_sms : {1, 2, 16, 66, 131, 132})
    for (const int blocks_of_sm : {1, 2, 8, 32})
      for (const unsigned x : kSizes)
        for (const unsigned y : kSizes) {
          const GridSize grid = grid_within({x, y}, 1, most_blocks(num_sms, blocks_of_sm, 1));
          ASSERT_LE(grid.blocks(), static_cast<unsigned>(num_sms * blocks_of_sm)) << x << " x " << y;
          ASSERT_TRUE(grid.x >= 1 && grid.y >= 1 && grid.x <= x && grid.y <= y) << x << " x " << y;
        }
}

TEST(GridWithin, LeavesAGridThatFits) {
  for (const unsigned x : kSizes)
    for (const unsigned y : kSizes) EXPECT_EQ(grid_within({x, y}, 1, x * y), (GridSize{x, y}));
}

// Otherwise a lane of 66 SMs would leave half of them idle.
TEST(GridWithin, UsesMostOfWhatTheSmsHold) {
  for (const unsigned most : {16u, 66u, 528u})
    for (const unsigned x : kSizes)
      for (const unsigned y : kSizes) {
        if (x * y <= most) continue;
        EXPECT_GE(2 * grid_within({x, y}, 1, most).blocks(), most) << x << " x " << y << " within " << most;
      }
}

TEST(GridWithin, KeepsClustersWhole) {
  EXPECT_EQ(grid_within({8, 100}, 8, most_blocks(66, 2, 8)), (GridSize{8, 16}));
  EXPECT_EQ(grid_within({8, 5}, 8, most_blocks(1, 2, 8)), (GridSize{8, 1}));  // fewer than a cluster do not run
  EXPECT_EQ(grid_within({132, 1}, 2, most_blocks(67, 1, 2)), (GridSize{66, 1}));
}

// An H200's GPCs have 16 or 18 SMs: 132 hold 8 clusters of 10 blocks, not 13. A block that waits for one of another
// cluster, which does not start, waits until its deadline.
TEST(MostInClusters, IsWhatClustersOfTheDeviceHold) {
  EXPECT_EQ(most_in_clusters(132, 10, 8), 80u);
  EXPECT_EQ(most_in_clusters(132, 2, 66), 132u);
  EXPECT_EQ(most_in_clusters(66, 16, 8), 64u) << "a part of the device";
  EXPECT_EQ(most_in_clusters(132, 16, 0), 0u) << "no such clusters";
}

}  // namespace
}  // namespace heddle
