// How rows of W are dealt to thread blocks: each once, and where a row's sum begins depends on no number of blocks.
#include "kernels/linear/linear_shares.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace heddle {
namespace {

struct Dealt {
  std::vector<int> times, first_step;  // of each output
  int tiles = 0;                       // of the block that has most
};

Dealt dealt(std::uint32_t blocks, int outputs, int most_of_tile, int steps) {
  Dealt result{.times = std::vector<int>(static_cast<std::size_t>(outputs)),
               .first_step = std::vector<int>(static_cast<std::size_t>(outputs), -1)};
  for (std::uint32_t block = 0; block < blocks; ++block) {
    StreamTiles tiles = StreamTiles::of_block(StreamTiles::Sizes::of(outputs, most_of_tile, steps), block, blocks);
    const int count = tiles.count();
    result.tiles = std::max(result.tiles, count);
    for (int tile = 0; tile < count; ++tile) {
      EXPECT_GT(tiles.tile_outputs(), 0);
      EXPECT_LE(tiles.tile_outputs(), most_of_tile);
      EXPECT_LT(tiles.share.first_step, steps);
      for (int i = 0; i < tiles.tile_outputs(); ++i) {
        const auto output = static_cast<std::size_t>(tiles.begin + i);
        ++result.times.at(output);
        result.first_step.at(output) = tiles.share.first_step;
      }
      const bool last_of_share = tiles.begin + tiles.tile_outputs() == tiles.share.end;
      EXPECT_EQ(tiles.advance(), last_of_share);
    }
    EXPECT_EQ(tiles.begin, tiles.end_of_block);
    EXPECT_EQ(tiles.tile_outputs(), 0);
  }
  return result;
}

constexpr int kOutputs[] = {1, 7, 131, 132, 133, 577, 2048, 4608, 14336, 16500};

TEST(LinearShares, EveryOutputIsInOneTileOfOneBlock) {
  for (const int outputs : kOutputs)
    for (const std::uint32_t blocks : {1u, 2u, 66u, 78u, 100u, 114u, 131u, 132u, 148u, 1023u})
      for (const int most : {8, 16, 24, 48}) {
        SCOPED_TRACE(fmt::format("{} outputs, {} blocks, tiles of {}", outputs, blocks, most));
        EXPECT_EQ(dealt(blocks, outputs, most, 8).times, std::vector<int>(static_cast<std::size_t>(outputs), 1));
      }
}

TEST(LinearShares, TheOrderOfASumDependsOnNoNumberOfBlocksNorHeightOfTiles) {
  for (const int outputs : kOutputs)
    for (const int steps : {1, 2, 5, 8, 28}) {
      const std::vector<int> expected = dealt(kShares, outputs, 16, steps).first_step;
      for (const std::uint32_t blocks : {1u, 66u, 78u, 114u, 132u, 148u})
        for (const int most : {8, 48})
          EXPECT_EQ(dealt(blocks, outputs, most, steps).first_step, expected)
              << outputs << " outputs, " << blocks << " blocks, " << steps << " steps";
    }
}

// linear_sm90_stream.cu sizes the ring of such a block by this.
TEST(LinearShares, ABlockOfAsManyAsSharesHasOneShareInEvenTiles) {
  for (const int outputs : kOutputs) {
    const int most_of_block = (outputs + kShares - 1) / kShares;
    EXPECT_EQ(dealt(kShares, outputs, 16, 8).tiles, (most_of_block + 15) / 16) << outputs;
  }
}

// Whatever the number of steps: 16 million features have 32768.
TEST(LinearShares, ABlockOfAsManyAsSharesFindsItsShareWithoutDivisions) {
  for (const int outputs : {1, 7, 131, 132, 133, 577, 2048, 4608, 14336, 16500, static_cast<int>(kMostOutputs)})
    for (const int steps : {1, 2, 3, 4, 5, 8, 16, 28, 57, 131, 263, 264, 265, 1000, 32768})
      for (const int most : {8, 16, 24, 48}) {
        const auto sizes = ShareTiles::Sizes::of(outputs, most, steps);
        for (std::uint32_t block = 0; block < kShares; ++block) {
          StreamTiles any = StreamTiles::of_block(StreamTiles::Sizes::of(outputs, most, steps), block, kShares);
          ShareTiles whole = ShareTiles::of_block(sizes, block, kShares);
          SCOPED_TRACE(fmt::format("block {}, {} outputs, {} steps, tiles of {}", block, outputs, steps, most));
          ASSERT_EQ(whole.count(), any.count());
          ASSERT_EQ(whole.steps(), any.steps());
          for (int tile = 0; tile < whole.count(); ++tile) {
            ASSERT_EQ(whole.begin, any.begin);
            ASSERT_EQ(whole.tile_outputs(), any.tile_outputs());
            ASSERT_EQ(whole.first_step(), any.first_step());
            any.advance();
            ASSERT_FALSE(whole.advance());
          }
        }
      }
}

TEST(LinearShares, HoldTheLargestMatrixIn32Bits) {
  const int outputs = static_cast<int>(kMostOutputs);
  const StreamTiles last = StreamTiles::of_block(StreamTiles::Sizes::of(outputs, 16, 8), kMostBlocks - 1, kMostBlocks);
  EXPECT_EQ(last.end_of_block, outputs);
  EXPECT_EQ(last.begin, static_cast<int>(std::int64_t{outputs} * (kMostBlocks - 1) / kMostBlocks));
}

}  // namespace
}  // namespace heddle
