// How rows of W are dealt to clusters for the GEMM of a decode batch.
#include "kernels/linear/linear_batch_tiles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(LinearBatchTiles, EveryOutputIsInOneTileThatIsNotTooHigh) {
  for (const int outputs : {1, 7, 64, 65, 131, 132, 133, 577, 4096, 14336, 128256, 1 << 22})
    for (const int most : {32, 64, 128, 256})
      for (const int teams : {1, 2, 8, 30, 66, 132}) {
        SCOPED_TRACE(fmt::format("{} outputs, tiles of {}, {} clusters", outputs, most, teams));
        const BatchTiles tiles = BatchTiles::of(outputs, most, teams);
        ASSERT_LE(tiles.count, outputs);
        int end = 0;
        for (int tile = 0; tile < tiles.count; ++tile) {
          ASSERT_EQ(tiles.begin(tile), end);
          ASSERT_GE(tiles.outputs(tile), 1);
          ASSERT_LE(tiles.outputs(tile), most);
          ASSERT_EQ(tiles.begin(tile) % BatchTiles::kGroup, 0);
          ASSERT_GE(tiles.height(tile), tiles.outputs(tile));
          ASSERT_LE(tiles.height(tile), most);
          // Boxes of `groups` and `groups` + 1 groups load all of them.
          ASSERT_EQ(tiles.height(tile) / BatchTiles::kGroup, tiles.is_longer(tile) ? tiles.groups + 1 : tiles.groups);
          end += tiles.outputs(tile);
        }
        ASSERT_EQ(end, outputs);
      }
}

TEST(LinearBatchTiles, ClustersTakeAsManyTiles) {
  EXPECT_EQ(BatchTiles::of(128256, 256, 132).count, 4 * 132);
  EXPECT_EQ(BatchTiles::of(4096, 64, 66).count, 66);
  EXPECT_EQ(BatchTiles::of(40, 64, 66).count, 5);
}

}  // namespace
}  // namespace heddle
