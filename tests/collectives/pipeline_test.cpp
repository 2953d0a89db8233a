// How a pipelined call cuts a buffer: each byte is in one chunk, and slots in use at the same time are distinct.
#include "collectives/pipeline.cuh"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <vector>

namespace heddle {
namespace {

struct Shape {
  std::size_t bytes;
  int ranks, blocks;
  std::size_t slots_bytes;
};

constexpr Shape kShapes[] = {{1, 2, 1, 4096},           {40, 3, 5, 4096},          {4099, 4, 7, 2048},
                             {4096, 8, 128, 1 << 16},   {200'000, 5, 3, 1 << 16},  {300'001, 4, 128, 1 << 21},
                             {1 << 18, 2, 64, 1 << 24}, {100'000, 72, 16, 1 << 20}};

TEST(ChunkCut, HasEveryByteOnce) {
  for (const Shape& shape : kShapes) {
    const ChunkCut cut(shape.bytes, shape.ranks, shape.blocks, shape.slots_bytes);
    std::vector<int> times(shape.bytes, 0);
    for (int block = 0; block < shape.blocks; ++block) {
      for (int piece = 0; piece < shape.ranks; ++piece)
        for (std::uint32_t c = 0; c < cut.chunks(block); ++c)
          for (std::size_t i = 0; i < cut.size(piece, block, c); ++i) ++times.at(cut.begin(piece, block, c) + i);
    }
    EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }))
        << shape.bytes << " bytes, " << shape.ranks << " ranks";
  }
}

TEST(ChunkCut, BeginsChunksAtPacketsAndFitsThemIntoSlots) {
  for (const Shape& shape : kShapes) {
    const ChunkCut cut(shape.bytes, shape.ranks, shape.blocks, shape.slots_bytes);
    const std::size_t most = ChunkCut::chunk_bytes(shape.slots_bytes, shape.blocks, shape.ranks);
    ASSERT_GT(most, 0U);
    for (int block = 0; block < shape.blocks; ++block) {
      EXPECT_GE(cut.slots(), ChunkCut::kFewestSlots);
      for (int piece = 0; piece < shape.ranks; ++piece)
        for (std::uint32_t c = 0; c < cut.chunks(block); ++c) {
          EXPECT_LE(cut.size(piece, block, c), most);
          EXPECT_TRUE(cut.size(piece, block, c) == 0 || cut.begin(piece, block, c) % kPacketBytes == 0);
        }
    }
  }
}

TEST(ChunkCut, GivesEverySourceChunkAndBlockASlotOfItsOwnUntilItsTurnComesAgain) {
  for (const Shape& shape : kShapes) {
    const ChunkCut cut(shape.bytes, shape.ranks, shape.blocks, shape.slots_bytes);
    const std::size_t most = ChunkCut::chunk_bytes(shape.slots_bytes, shape.blocks, shape.ranks);
    std::set<std::size_t> slots;
    std::uint64_t count = 0;
    for (int block = 0; block < shape.blocks; ++block) {
      for (int source = 0; source < shape.ranks; ++source)
        for (std::uint32_t c = 0; c < cut.slots(); ++c, ++count) {
          slots.insert(cut.slot(source, block, c));
          EXPECT_EQ(cut.slot(source, block, c) % most, 0U);
          EXPECT_LE(cut.slot(source, block, c) + most, shape.slots_bytes);
          EXPECT_EQ(cut.slot(source, block, c + cut.slots()), cut.slot(source, block, c));
        }
    }
    EXPECT_EQ(slots.size(), count);
  }
}

TEST(ChunkCut, OfTooFewSlotsIsNone) {
  EXPECT_EQ(ChunkCut::chunk_bytes(4 * 128 * 8 * 16 - 1, 128, 8), 0U);
}

}  // namespace
}  // namespace heddle
