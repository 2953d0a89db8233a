// The push by blocks that multiply meanwhile (PushParts), on ranks that share memory, with a thread for each block of each.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/sanitizer.h"
#include "base/team.h"
#include "device/channel_calls.h"
#include "device/kernel_end.h"
#include "fabric/shm/threads.h"
#include "fused/all_gather_linear/produce.cuh"
#include "fused/course_rank.h"
#include "fused/tile_channel.h"

namespace heddle {
namespace {

constexpr std::int64_t kTileRows = 4, kMostTiles = 3, kColumns = 24;
constexpr std::size_t kRowBytes = kColumns * 2, kBehind = 16;  // whole vectors; between rows of x
constexpr int kCalls = kThreadSanitizer ? 20 : 80;

struct PushCall {
  ShardTiles tiles;
  std::vector<std::vector<std::byte>> shards;  // of each rank, packed
  int parts, blocks;
};

// The same on every rank.
PushCall drawn_call(Draws& shared, int ranks) {
  std::vector<std::int64_t> rows;
  PushCall call;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back(shared.between(0, kTileRows * kMostTiles));
    call.shards.emplace_back(static_cast<std::size_t>(rows.back()) * kRowBytes);
    for (std::byte& byte : call.shards.back()) byte = static_cast<std::byte>(shared.between(0, 255));
  }
  call.tiles = {
      .shards = Shards::of(rows), .of_rows = true, .other = kColumns, .tile_rows = kTileRows, .element_bytes = 2};
  call.parts = static_cast<int>(shared.between(1, kTileRows + 2));  // more than a tile has rows, too
  call.blocks = static_cast<int>(shared.between(1, 3));
  return call;
}

std::vector<std::byte> with_gaps(const std::vector<std::byte>& packed) {
  std::vector<std::byte> rows(packed.size() / kRowBytes * (kRowBytes + kBehind));
  for (std::size_t row = 0; row < packed.size() / kRowBytes; ++row)
    std::memcpy(rows.data() + row * (kRowBytes + kBehind), packed.data() + row * kRowBytes, kRowBytes);
  return rows;
}

void expect_all_tiles(const PushCall& call, const TileChannel& channel) {
  const Peers& peers = channel.peers();
  for (int step = 1; step < peers.size; ++step) {
    const int owner = (peers.rank + step) % peers.size;
    for (int tile = 0; tile < call.tiles.tiles(owner); ++tile) {
      ASSERT_TRUE(await_full(HostThread{}, peers, owner, channel.slots().channel, tile, "test: tile"));
      const std::byte* const sent = call.shards[static_cast<std::size_t>(owner)].data() +
                                    static_cast<std::size_t>(call.tiles.first_row(tile)) * kRowBytes;
      EXPECT_EQ(std::memcmp(channel.slots().arriving(owner, tile), sent, call.tiles.bytes(owner, tile)), 0)
          << "tile " << tile << " of rank " << owner << " at rank " << peers.rank;
      give_back(HostThread{}, peers, owner, channel.slots().channel, tile, 1);
    }
  }
}

class PushByParts : public testing::TestWithParam<int> {};

TEST_P(PushByParts, BringsEveryTileOfShardsOfAnyLengthInEachOfManyCalls) {
  const int ranks = GetParam();
  const TileChannelShape shape{.tiles_per_rank = kMostTiles, .tile_bytes = kTileRows * kRowBytes};
  ShmThreads world(ranks, {.heap_bytes = TileChannel::heap_bytes(ranks, shape), .deadline = std::chrono::seconds(60)});
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    const TileChannel channel(*fabric, world_of(*fabric), shape, "test");
    Draws shared(11), own(static_cast<std::uint32_t>(member.rank()) + 3);
    for (int number = 0; number < kCalls; ++number) {
      const PushCall call = drawn_call(shared, ranks);
      const std::vector<std::byte> x = with_gaps(call.shards[static_cast<std::size_t>(member.rank())]);
      const PushParts push{{x.data(), kRowBytes + kBehind}, call.parts};
      std::vector<std::jthread> blocks;
      for (int block = 0; block < call.blocks; ++block)
        blocks.emplace_back([&, block, delay = std::chrono::microseconds(own.between(0, 60))] {
          std::this_thread::sleep_for(delay);
          push(HostThread{block, call.blocks}, channel.peers(), call.tiles, channel.slots());
        });
      expect_all_tiles(call, channel);
      blocks.clear();
      end_as_a_kernel();
    }
    member.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PushByParts, testing::Values(1, 2, 3, 4),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace heddle
