// The channel of src/device/channel.h on threads of the CPU: a thread per producer or consumer, ranks with heaps of
// their own, random delays. Under ThreadSanitizer it also shows that the channel alone orders all accesses to the
// buffers.
#include "base/sanitizer.h"
#include "device/channel_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace heddle {
namespace {

constexpr int kWords = 24, kTiles = 3;
constexpr int kRounds = kThreadSanitizer ? 150 : 1000;

// A rank's heap: the channel, then a buffer per sender and tile.
class ChannelWorld {
 public:
  explicit ChannelWorld(int ranks, std::uint64_t nanoseconds = 10'000'000'000) : ranks_(ranks) {
    const std::size_t bytes = Channel::bytes(ranks, kTiles) + sizeof(std::uint64_t) * kWords * kTiles * 8;
    for (int rank = 0; rank < ranks; ++rank) heaps_.emplace_back(bytes / sizeof(std::uint64_t));
    for (int rank = 0; rank < ranks; ++rank) {
      Peers peers{.rank = rank, .size = ranks, .waits = {&record_, nanoseconds, 1}};
      for (int p = 0; p < ranks; ++p) peers.heaps[p] = heap(p);
      peers_.push_back(peers);
      channels_.push_back(Channel::in(heap(rank), ranks, kTiles));
      for (int i = 0; i < ranks * kTiles; ++i) channels_.back().credits[i].free.arrived = 1;
    }
  }

  const Peers& peers(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  const Channel& channel(int rank) const { return channels_[static_cast<std::size_t>(rank)]; }
  std::uint64_t* buffer(int rank, int sender, int tile) {
    auto* const first = reinterpret_cast<std::uint64_t*>(heap(rank) + Channel::bytes(ranks_, kTiles));
    return first + (sender * kTiles + tile) * kWords;
  }
  const WaitRecord& record() const { return record_; }

 private:
  std::byte* heap(int rank) { return reinterpret_cast<std::byte*>(heaps_[static_cast<std::size_t>(rank)].data()); }

  int ranks_;
  WaitRecord record_;
  std::vector<std::vector<std::uint64_t>> heaps_;
  std::vector<Peers> peers_;
  std::vector<Channel> channels_;
};

void pause(std::uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  if ((state >> 16) % 512 == 0) std::this_thread::sleep_for(std::chrono::microseconds((state >> 25) % 64));
  if ((state >> 16) % 8 == 0) std::this_thread::yield();
}

std::uint64_t word_of_tile(int round, int sender, int receiver, int tile, int i) {
  return static_cast<std::uint64_t>(round) << 32 | static_cast<std::uint64_t>((sender * 8 + receiver) * 8 + tile) << 8 |
         static_cast<std::uint64_t>(i);
}

// Each rank has `producers`, which fill a part of each tile, and `consumers`, which read all of each. The producers of a
// rank meet after each round, and so do its consumers, as at a kernel's end.
void expect_every_tile_arrives_in_its_round(int ranks, int producers, int consumers) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << producers << " producers, " << consumers << " consumers");
  ChannelWorld world(ranks);
  std::atomic<int> wrong{0};
  struct Meeting {
    alignas(64) std::atomic<int> here{0};
    std::atomic<int> rounds{0};
    void operator()(int members) {
      const int round = rounds.load(std::memory_order_acquire);
      if (here.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
        here.store(0, std::memory_order_relaxed);
        rounds.store(round + 1, std::memory_order_release);
      } else {
        while (rounds.load(std::memory_order_acquire) == round) std::this_thread::yield();
      }
    }
  };
  std::vector<Meeting> produced(static_cast<std::size_t>(ranks)), consumed(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int part = 0; part < producers; ++part)
      threads.emplace_back([&, rank, part] {
        std::uint32_t state = static_cast<std::uint32_t>(rank * 16 + part);
        const Peers& peers = world.peers(rank);
        const Channel& channel = world.channel(rank);
        const auto put = [&](int round, int to, int tile) {
          pause(state);
          std::uint64_t* const place = peers.at(to, world.buffer(rank, rank, tile));
          for (int i = part; i < kWords; i += producers) place[i] = word_of_tile(round, rank, to, tile, i);
        };
        for (int round = 0; round < kRounds; ++round) {
          for (int step = 0; step < ranks * kTiles; ++step) {
            const int to = (rank + step / kTiles) % ranks, tile = step % kTiles;
            if (producers == 1) {
              if (!claim(HostThread{}, peers, to, channel, tile, "claim")) ++wrong;
              put(round, to, tile);
              fill(HostThread{}, peers, to, channel, tile);
            } else {
              if (!await_credit(HostThread{}, peers, to, channel, tile, "credit")) ++wrong;
              put(round, to, tile);
              fill_part(HostThread{}, peers, to, channel, tile, static_cast<std::uint64_t>(producers));
            }
          }
          produced[static_cast<std::size_t>(rank)](producers);
        }
      });
    for (int c = 0; c < consumers; ++c)
      threads.emplace_back([&, rank, c] {
        std::uint32_t state = static_cast<std::uint32_t>(rank * 16 + c + 7);
        const Peers& peers = world.peers(rank);
        const Channel& channel = world.channel(rank);
        for (int round = 0; round < kRounds; ++round) {
          for (int step = 0; step < ranks * kTiles; ++step) {
            const int from = (rank + step / kTiles) % ranks, tile = (step + c) % kTiles;
            if (!await_full(HostThread{}, peers, from, channel, tile, "await")) ++wrong;
            const std::uint64_t* const place = world.buffer(rank, from, tile);
            for (int i = 0; i < kWords; ++i)
              if (place[i] != word_of_tile(round, from, rank, tile, i)) ++wrong;
            pause(state);
            give_back(HostThread{}, peers, from, channel, tile, static_cast<std::uint64_t>(consumers));
          }
          consumed[static_cast<std::size_t>(rank)](consumers);
        }
      });
  }
  threads.clear();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(world.record().state, WaitRecord::empty) << world.record().rank << " gave up on " << world.record().from;
}

TEST(Channel, EveryTileArrivesInItsRoundWhateverThePaceOfTheRanks) {
  expect_every_tile_arrives_in_its_round(1, 1, 1);
  expect_every_tile_arrives_in_its_round(2, 1, 1);
  expect_every_tile_arrives_in_its_round(3, 1, 1);
  expect_every_tile_arrives_in_its_round(2, 2, 3);
}

TEST(Channel, ASenderDoesNotGetASlotThatItsReceiverHasNotGivenBack) {
  ChannelWorld world(2, 1'000'000);
  const HostThread group;
  ASSERT_TRUE(claim(group, world.peers(0), 1, world.channel(0), 2, "first"));
  fill(group, world.peers(0), 1, world.channel(0), 2);
  ASSERT_TRUE(await_full(group, world.peers(1), 0, world.channel(1), 2, "full"));
  give_back(group, world.peers(1), 0, world.channel(1), 2, 2);  // one of two consumers
  EXPECT_FALSE(claim(group, world.peers(0), 1, world.channel(0), 2, "second"));
  EXPECT_EQ(world.record().state, WaitRecord::complete);
  EXPECT_EQ(world.record().rank, 0);
  EXPECT_EQ(world.record().from, 1);
  give_back(group, world.peers(1), 0, world.channel(1), 2, 2);
  EXPECT_TRUE(claim(group, world.peers(0), 1, world.channel(0), 2, "second"));
}

TEST(Channel, AReceiverDoesNotTakeASlotBeforeItsLastPartHasArrived) {
  ChannelWorld world(2, 1'000'000);
  const HostThread group;
  ASSERT_TRUE(await_credit(group, world.peers(0), 1, world.channel(0), 0, "credit"));
  ASSERT_TRUE(await_credit(group, world.peers(0), 1, world.channel(0), 0, "credit"));
  fill_part(group, world.peers(0), 1, world.channel(0), 0, 2);
  EXPECT_FALSE(await_full(group, world.peers(1), 0, world.channel(1), 0, "full"));
  EXPECT_EQ(world.record().from, 0);
  EXPECT_EQ(world.record().expected, 1u);
  EXPECT_EQ(world.record().observed, 0u);
  fill_part(group, world.peers(0), 1, world.channel(0), 0, 2);
  EXPECT_TRUE(await_full(group, world.peers(1), 0, world.channel(1), 0, "full"));
}

TEST(Channel, UnequalSharesFillASlotWhenTheyAddUp) {
  ChannelWorld world(2, 1'000'000);
  const HostThread group;
  constexpr std::uint64_t kWhole = 7;
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t share : {1, 4}) {
      ASSERT_TRUE(await_credit(group, world.peers(0), 1, world.channel(0), 0, "credit"));
      fill_part(group, world.peers(0), 1, world.channel(0), 0, kWhole, share);
      EXPECT_EQ(world.channel(1).slot(0, 0)->full.arrived, static_cast<std::uint64_t>(round));
    }
    fill_part(group, world.peers(0), 1, world.channel(0), 0, kWhole, 2);
    ASSERT_TRUE(await_full(group, world.peers(1), 0, world.channel(1), 0, "full"));
    give_back(group, world.peers(1), 0, world.channel(1), 0, 1);
  }
  ASSERT_TRUE(await_credit(group, world.peers(0), 1, world.channel(0), 0, "credit"));
  fill_part(group, world.peers(0), 1, world.channel(0), 0, kWhole, kWhole);  // one has it all
  EXPECT_TRUE(await_full(group, world.peers(1), 0, world.channel(1), 0, "full"));
}

}  // namespace
}  // namespace heddle
