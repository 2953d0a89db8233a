// How blocks of a GPU divide works: by counting, on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fused/piece_attention/piece_shares.h"

namespace heddle {
namespace {

struct Sizes {
  int works, key_tiles, blocks;
};

const Sizes kSizes[] = {{1, 1, 132},      {1, 1000, 132}, {3, 17, 132},  {132, 18, 132},  {133, 18, 132},
                        {216, 36, 131},   {263, 9, 132},  {264, 9, 132}, {1728, 72, 132}, {1152, 72, 132},
                        {4680, 292, 132}, {7008, 292, 1}, {100, 0, 132}, {500, 3, 7},     {65, 513, 64}};

using Parts = std::map<int, std::vector<std::pair<int, PieceItem>>>;  // by work: blocks and what they have of it

Parts parts_of(const PieceShares& shares) {
  Parts parts;
  for (int block = 0; block < shares.blocks(); ++block)
    for (int index = 0;; ++index) {
      const PieceItem item = shares.item(block, index);
      if (item.is_over()) break;
      parts[item.work].emplace_back(block, item);
    }
  return parts;
}

TEST(PieceShares, EachTileOfEachWorkIsOneBlocksInTheOrderOfBlocks) {
  for (const Sizes& of : kSizes) {
    for (const PieceShares& shares :
         {PieceShares::divided(of.works, of.key_tiles, of.blocks), PieceShares(of.works, of.key_tiles, of.blocks)}) {
      const Parts parts = parts_of(shares);
      ASSERT_EQ(parts.size(), static_cast<std::size_t>(of.works));
      for (const auto& [work, blocks] : parts) {
        int next = 0;
        for (const auto& [block, item] : blocks) {
          EXPECT_EQ(item.first, next) << work;
          next = item.end;
        }
        EXPECT_EQ(next, of.key_tiles);
        if (work < shares.first_divided()) {
          EXPECT_EQ(blocks.size(), 1u);
          continue;
        }
        EXPECT_EQ(shares.first_block(work), blocks.front().first);
        EXPECT_EQ(shares.last_block(work), blocks.back().first);
        EXPECT_EQ(blocks.back().first - blocks.front().first + 1, static_cast<int>(blocks.size()));
      }
    }
  }
}

TEST(PieceShares, PartsHaveSlotsOfTheirOwn) {
  for (const Sizes& of : kSizes) {
    const PieceShares shares = PieceShares::divided(of.works, of.key_tiles, of.blocks);
    std::set<int> slots;
    std::size_t num_parts = 0;
    for (const auto& [work, blocks] : parts_of(shares))
      for (const auto& [block, item] : blocks) {
        if (shares.is_whole(item)) continue;
        ++num_parts;
        slots.insert(PieceShares::slot(block, item.first == 0));
        EXPECT_EQ(item.first == 0, block == shares.first_block(work));
      }
    EXPECT_EQ(slots.size(), num_parts);
    EXPECT_LT(slots.empty() ? -1 : *slots.rbegin(), shares.blocks() * PieceShares::kSlotsOfBlock);
  }
}

// Of the works that are divided there are at most two rounds, for which the counters have room.
TEST(PieceShares, DividedWorksLeaveNoBlockIdle) {
  for (const Sizes& of : kSizes) {
    const PieceShares shares = PieceShares::divided(of.works, of.key_tiles, of.blocks);
    if (shares.divided_works() == 0) continue;
    EXPECT_LE(shares.divided_works(), 2 * of.blocks);
    std::map<int, int> tiles;  // by block
    for (const auto& [work, blocks] : parts_of(shares))
      for (const auto& [block, item] : blocks) tiles[block] += item.end - item.first;
    EXPECT_EQ(tiles.size(), static_cast<std::size_t>(of.blocks));
    int fewest = tiles[0], most = tiles[0];
    for (const auto& [block, count] : tiles) {
      fewest = std::min(fewest, count);
      most = std::max(most, count);
    }
    EXPECT_LE(most - fewest, 1) << of.works;
  }
}

TEST(PieceShares, WorksAreWholeWhereLittleWouldBeIdle) {
  EXPECT_EQ(PieceShares::divided(264, 72, 132).divided_works(), 0);
  EXPECT_EQ(PieceShares::divided(1300, 3, 132).divided_works(), 0);
  EXPECT_GT(PieceShares::divided(1728, 72, 132).divided_works(), 0);
}

}  // namespace
}  // namespace heddle
