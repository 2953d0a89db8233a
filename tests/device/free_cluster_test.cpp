#include "device/free_cluster.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

// Eight GPCs that have `free` SMs between them, as evenly as can be: the worst for a cluster.
int largest_gpc(int free) {
  return (free + 7) / 8;
}

TEST(FreeCluster, FitsWhereverTheFreeSmsLie) {
  for (int cluster = 1; cluster <= 16; ++cluster)
    for (int free = 1; free <= 132; ++free)
      EXPECT_EQ(hold_a_cluster(free, cluster), largest_gpc(free) >= cluster) << free << " SMs, clusters of " << cluster;
}

TEST(FreeCluster, OfSixteenNeedsMoreThanHalfAnH200) {
  EXPECT_FALSE(hold_a_cluster(66, 16));
  EXPECT_TRUE(hold_a_cluster(66, 8));
  EXPECT_TRUE(hold_a_pair(9));
  EXPECT_FALSE(hold_a_pair(8));
}

}  // namespace
}  // namespace heddle
