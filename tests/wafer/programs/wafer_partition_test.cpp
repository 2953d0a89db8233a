#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "wafer/programs/partition.h"

namespace heddle {
namespace {

using testing::ElementsAre;

// Every index occurs once, the rest is padding.
void expect_whole(const Partition& partition, int size) {
  ASSERT_EQ(std::ssize(partition.source), partition.cores * partition.tile);
  std::vector<int> indices;
  std::ranges::copy_if(partition.source, std::back_inserter(indices), [](int i) { return i >= 0; });
  std::ranges::sort(indices);
  ASSERT_EQ(std::ssize(indices), size);
  for (int i = 0; i < size; ++i) ASSERT_EQ(indices[static_cast<std::size_t>(i)], i);
}

TEST(WaferPartition, DealsOutIndicesInOrder) {
  EXPECT_THAT(even_partition(5, 3).source, ElementsAre(0, 1, 2, 3, 4, -1));
  expect_whole(even_partition(4096, 360), 4096);
}

TEST(WaferPartition, KeepsPairsTogetherAndQueriesWithTheirKeys) {
  struct Case {
    int heads, kv_heads, head_dim;
  };
  for (const Case c : {Case{8, 2, 32}, Case{4, 4, 6}, Case{6, 1, 16}, Case{32, 8, 128}})
    for (const int cores : {3, 5, 8, 33, 360}) {
      const HeadPartition heads = head_partition(c.heads, c.kv_heads, c.head_dim, cores);
      expect_whole(heads.keys, c.kv_heads * c.head_dim);
      expect_whole(heads.queries, c.heads * c.head_dim);
      for (int core = 0; core < cores; ++core)
        for (int member = 0; member < heads.group; ++member)
          for (int place = 0; place < 2 * heads.units; ++place) {
            const int key = heads.keys.source[static_cast<std::size_t>(core * heads.keys.tile + place)];
            const int query =
                heads.queries
                    .source[static_cast<std::size_t>(core * heads.queries.tile + member * 2 * heads.units + place)];
            if (key < 0) {
              ASSERT_EQ(query, Partition::kPadding);
              continue;
            }
            ASSERT_EQ(query % c.head_dim, key % c.head_dim);
            ASSERT_EQ(query / c.head_dim / heads.group, key / c.head_dim);
            ASSERT_EQ(key / c.head_dim, heads.kv_head(core, place / 2));
            ASSERT_EQ(key % c.head_dim, heads.pair(core, place / 2) + (place % 2) * c.head_dim / 2);
          }
    }
}

}  // namespace
}  // namespace heddle
