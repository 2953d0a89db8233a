// The grid of decode attention on made-up devices: it must be resident as a whole on the SMs it is granted, whichever
// others are held.
#include "kernels/attention/attention_decode_grid.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace heddle {
namespace {

using Groups = std::vector<int>;  // SMs that lie together: blocks of a cluster are all in one of them

int clusters_in(const Groups& groups, int blocks) {
  return std::accumulate(groups.begin(), groups.end(), 0, [&](int sum, int sms) { return sum + sms / blocks; });
}

ClustersAtOnce clusters_of(const Groups& groups) {
  ClustersAtOnce found{};
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = clusters_in(groups, kClusterBlocks[i]);
  return found;
}

const Groups kH200{16, 16, 16, 16, 16, 16, 18, 18}, kOdd{17, 15, 18, 9};

// Takes SMs away where that costs most clusters.
Groups held_at_worst(Groups groups, int held, int blocks) {
  for (; held > 0; --held) {
    auto worst = groups.begin();
    for (auto group = groups.begin(); group != groups.end(); ++group)
      if (*group > 0 && (*worst == 0 || *group % blocks < *worst % blocks)) worst = group;
    --*worst;
  }
  return groups;
}

TEST(AttentionDecodeGrid, IsResidentAsAWholeWhicheverSmsAreHeld) {
  std::mt19937 random(3);
  for (const Groups& groups : {kH200, kOdd}) {
    const int sms = std::accumulate(groups.begin(), groups.end(), 0);
    for (int granted = 1; granted <= sms; ++granted)
      for (const int items : {1, 2, 4, 7, 8, 16, 32}) {
        const DecodeGrid grid = decode_grid(clusters_of(groups), 1, items, granted, sms - granted);
        EXPECT_LE(grid.blocks, granted);
        EXPECT_GE(grid.blocks, 1);
        if (grid.cluster == 1) continue;
        const int wanted = grid.blocks / grid.cluster;
        EXPECT_GE(wanted, items);
        EXPECT_GE(clusters_in(held_at_worst(groups, sms - granted, grid.cluster), grid.cluster), wanted)
            << granted << " of " << sms << ", clusters of " << grid.cluster;
        Groups left = groups;
        for (int held = sms - granted; held > 0;)
          if (int& group = left[random() % left.size()]; group > 0) --group, --held;
        EXPECT_GE(clusters_in(left, grid.cluster), wanted) << granted << " of " << sms;
      }
  }
}

TEST(AttentionDecodeGrid, TakesTheWholeDeviceWhereAllIsGranted) {
  const ClustersAtOnce clusters = clusters_of(kH200);
  const DecodeGrid one_item = decode_grid(clusters, 1, 8, 132, 0);
  EXPECT_EQ(one_item.cluster, 16);
  EXPECT_EQ(one_item.blocks, 128);
  EXPECT_EQ(decode_grid(clusters, 1, 40, 132, 0).cluster, 1);  // more items than clusters
  EXPECT_EQ(decode_grid(clusters, 1, 40, 132, 0).blocks, 132);
  EXPECT_EQ(decode_grid(clusters, 5, 1, 132, 0).blocks, 132);  // a batch has no clusters
  EXPECT_EQ(decode_grid({}, 1, 1, 400, 0).blocks, kMaxDecodeBlocks);
}

}  // namespace
}  // namespace heddle
