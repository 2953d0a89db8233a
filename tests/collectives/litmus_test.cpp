// Litmus tests of message passing by packets and by flags. Each thread is one block of one rank, as in a kernel.
// Thousands of epochs with random delays; the blocks of a rank meet between epochs, as at a kernel's end. The programs
// are those of the GPU, and ThreadSanitizer checks their memory orders.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitizer.h"
#include "collectives/all_gather.cuh"
#include "collectives/all_reduce.cuh"
#include "collectives/all_to_all.cuh"
#include "collectives/broadcast.cuh"
#include "collectives/pipelined_all_reduce.cuh"

namespace heddle {
namespace {

constexpr std::size_t kBufferBytes = 4096, kSlotsBytes = 8192, kMemoryBytes = 4096;  // the last for the callers

std::uint32_t drawn(std::uint32_t& state) {
  return (state = state * 1664525u + 1013904223u) >> 16;
}

void delay(std::uint32_t& state) {
  const std::uint32_t kind = drawn(state) % 64;
  if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn(state) % 100));
  if (kind < 8) std::this_thread::yield();
}

// Peers to whom bytes sometimes take long, as over a link, while flags and packets do not. So a flag that is raised
// before its data is detected.
struct SlowPeers : Peers {
  template <class T>
  T* at(int peer, T* local) const {
    thread_local std::uint32_t state = static_cast<std::uint32_t>(rank) * 97u + 5;
    if (std::is_same_v<T, std::byte> && peer != rank && drawn(state) % 32 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    return Peers::at(peer, local);
  }
};

// Ranks with a heap each, and the CollectiveMemory in it.
class World {
 public:
  World(int ranks, int blocks) : ranks_(ranks), blocks_(blocks) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t flags = kMaxBlocks * n * sizeof(std::uint64_t);
    const std::size_t inbox = kInboxBuffers * kBufferBytes;
    for (int rank = 0; rank < ranks; ++rank) {
      heaps_.emplace_back((inbox + packets_of(inbox) + 3 * flags + kSlotsBytes + kMemoryBytes) / sizeof(Packet));
      states_.emplace_back(kMaxBlocks);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      auto* next = reinterpret_cast<std::byte*>(heaps_[r].data());
      const auto take = [&](std::size_t bytes) { return std::exchange(next, next + bytes); };
      CollectiveMemory w;
      w.inbox = take(inbox);
      std::memset(w.inbox, 0xff, inbox);
      w.buffer_bytes = kBufferBytes;
      w.codes = reinterpret_cast<std::uint8_t*>(take(packets_of(inbox)));
      for (std::uint64_t** of : {&w.flags, &w.shares_come, &w.sums_come})
        *of = reinterpret_cast<std::uint64_t*>(take(flags));
      w.slots = take(kSlotsBytes);
      w.slots_bytes = kSlotsBytes;
      w.blocks = states_[r].data();
      memories_.push_back(w);
      outputs_.push_back(take(kMemoryBytes));
      SlowPeers peers{{.rank = rank, .size = ranks, .waits = {&record_, 10'000'000'000}}};
      for (int p = 0; p < ranks; ++p)
        peers.heaps[p] = reinterpret_cast<std::byte*>(heaps_[static_cast<std::size_t>(p)].data());
      peers_.push_back(peers);
    }
  }

  const SlowPeers& peers(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  const CollectiveMemory& memory(int rank) const { return memories_[static_cast<std::size_t>(rank)]; }
  std::byte* output(int rank) const { return outputs_[static_cast<std::size_t>(rank)]; }

  struct Block {
    HostThread group;
    const SlowPeers& peers;
    const CollectiveMemory& memory;
    std::byte* output;  // the rank's, symmetric
    int epoch = 0;
    std::uint32_t shared = 1;  // random numbers, the same on every rank and block in an epoch
  };

  // body(block) `epochs` times in each block of each rank; then check(block), when all blocks of the rank have ended.
  template <class Body, class Check>
  void run(int epochs, const Body& body, const Check& check) {
    std::vector<std::unique_ptr<std::barrier<>>> kernel_ends;
    for (int rank = 0; rank < ranks_; ++rank) kernel_ends.push_back(std::make_unique<std::barrier<>>(blocks_));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      for (int b = 0; b < blocks_; ++b)
        threads.emplace_back([&, rank, b] {
          const auto r = static_cast<std::size_t>(rank);
          Block block{{b, blocks_}, peers_[r], memories_[r], outputs_[r]};
          std::uint32_t own = static_cast<std::uint32_t>(rank * 8 + b) * 7919u + 3;
          for (; block.epoch < epochs; ++block.epoch) {
            drawn(block.shared);
            delay(own);
            body(block);
            kernel_ends[r]->arrive_and_wait();
            if (b == 0 && !testing::Test::HasFailure()) check(block);
            kernel_ends[r]->arrive_and_wait();
          }
        });
    threads.clear();
    for (const CollectiveMemory& memory : memories_)
      for (std::size_t i = 0; i < kInboxBuffers * packets_of(kBufferBytes); ++i)
        EXPECT_EQ(memory.codes[i], 0) << "of packet " << i << ": an escape was left behind";
    EXPECT_EQ(record_.state, WaitRecord::empty) << "rank " << record_.rank << " gave up on rank " << record_.from;
  }

 private:
  int ranks_, blocks_;
  WaitRecord record_;
  std::vector<std::vector<Packet>> heaps_;
  std::vector<std::vector<BlockState>> states_;
  std::vector<CollectiveMemory> memories_;
  std::vector<std::byte*> outputs_;
  std::vector<SlowPeers> peers_;
};

// 64 bits that are unique to rank, epoch and place, except that some have a meaning in packets.
std::uint64_t word_of(int epoch, int rank, std::size_t i) {
  if ((static_cast<std::size_t>(epoch) + i) % 5 == 0) return i % 2 == 0 ? kEmpty : kEscape;
  return static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(rank) << 16 | i;
}

constexpr int kEpochs = kThreadSanitizer ? 1500 : 4000;

struct LitmusShape {
  int ranks, blocks;
};
constexpr LitmusShape kTeams[] = {{2, 1}, {2, 2}, {3, 1}, {4, 1}};

TEST(Litmus, PacketsOfBytesMatchTheirEpochWhateverTheyHold) {
  for (const LitmusShape shape : kTeams) {
    World world(shape.ranks, shape.blocks);
    const auto n = static_cast<std::size_t>(shape.ranks);
    constexpr std::size_t kMost = 16;  // words a piece
    std::vector<std::vector<std::uint64_t>> out(n, std::vector<std::uint64_t>(n * kMost));
    const auto words = [](const World::Block& block) { return 1 + (block.shared >> 8) % kMost; };
    const auto all_to_all = [](const World::Block& block) { return (block.shared >> 24) % 2 == 0; };
    const auto input = [&](int epoch, int rank, int piece, std::size_t i) {
      return word_of(epoch, rank + 8 * piece, i);
    };
    world.run(
        kEpochs / static_cast<int>(n),
        [&](World::Block& block) {
          const auto r = static_cast<std::size_t>(block.peers.rank);
          const std::size_t count = words(block);
          std::vector<std::uint64_t> mine(n * count);
          for (int piece = 0; piece < shape.ranks; ++piece)
            for (std::size_t i = 0; i < count; ++i)
              mine[static_cast<std::size_t>(piece) * count + i] = input(block.epoch, block.peers.rank, piece, i);
          const auto* const from = reinterpret_cast<const std::byte*>(mine.data());
          auto* const to = reinterpret_cast<std::byte*>(out[r].data());
          if (all_to_all(block))
            LowLatencyAllToAll<4>{from, to, count * 8}(block.group, block.peers, block.memory);
          else
            LowLatencyAllGather<4>{from, to, count * 8}(block.group, block.peers, block.memory);
        },
        [&](const World::Block& block) {
          const std::size_t count = words(block);
          for (int p = 0; p < shape.ranks; ++p)
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(out[static_cast<std::size_t>(block.peers.rank)][static_cast<std::size_t>(p) * count + i],
                        input(block.epoch, p, all_to_all(block) ? block.peers.rank : 0, i))
                  << "epoch " << block.epoch << " rank " << block.peers.rank << " from " << p << " word " << i;
        });
  }
}

TEST(Litmus, PacketsOfSumsAndBroadcastsMatchTheirEpoch) {
  for (const LitmusShape shape : kTeams) {
    World world(shape.ranks, shape.blocks);
    const auto n = static_cast<std::size_t>(shape.ranks);
    constexpr std::size_t kMost = 40;
    std::vector<std::vector<float>> out(n, std::vector<float>(kMost));
    const auto value = [](int epoch, int rank, std::size_t i) {
      return static_cast<float>((epoch * 31 + rank * 7) % 4096) + static_cast<float>(i) * 0.5f;
    };
    const auto count_of = [](const World::Block& block) { return 20 + (block.shared >> 8) % (kMost - 20); };
    const auto kind_of = [](const World::Block& block) { return (block.shared >> 24) % 3; };
    world.run(
        kEpochs / static_cast<int>(n),
        [&](World::Block& block) {
          const std::size_t count = count_of(block), bytes = count * sizeof(float);
          std::vector<float> mine(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = value(block.epoch, block.peers.rank, i);
          const auto* const from = reinterpret_cast<const std::byte*>(mine.data());
          auto* const to = reinterpret_cast<std::byte*>(out[static_cast<std::size_t>(block.peers.rank)].data());
          if (kind_of(block) == 0)
            OneShotAllReduce<float, 4>{from, to, bytes}(block.group, block.peers, block.memory);
          else if (kind_of(block) == 1)
            TwoPhaseAllReduce<float, 4>{from, to, {bytes, shape.ranks}}(block.group, block.peers, block.memory);
          else
            LowLatencyBroadcast{from, to, bytes, block.epoch % shape.ranks}(block.group, block.peers, block.memory);
        },
        [&](const World::Block& block) {
          for (std::size_t i = 0; i < count_of(block); ++i) {
            float want = 0;
            for (int p = 0; p < shape.ranks; ++p) want += value(block.epoch, p, i);
            if (kind_of(block) == 2) want = value(block.epoch, block.epoch % shape.ranks, i);
            ASSERT_EQ(out[static_cast<std::size_t>(block.peers.rank)][i], want)
                << "epoch " << block.epoch << " rank " << block.peers.rank << " kind " << kind_of(block);
          }
        });
  }
}

// Plain memory: peers read after a barrier what a block put before it, and write it only after the next barrier.
TEST(Litmus, WhatIsPutBeforeABlockBarrierIsThereAfterIt) {
  for (const LitmusShape shape : kTeams) {
    World world(shape.ranks, shape.blocks);
    world.run(
        kEpochs / shape.ranks,
        [&](World::Block& block) {
          auto barrier = barrier_of(block.group, block.peers, block.memory, "litmus");
          auto* const words = reinterpret_cast<std::uint64_t*>(block.output) + block.group.block() * shape.ranks;
          for (int p = 0; p < shape.ranks; ++p)
            *block.peers.at(p, words + block.peers.rank) = word_of(block.epoch, block.peers.rank, 1);
          ASSERT_TRUE(barrier());
          for (int p = 0; p < shape.ranks; ++p) ASSERT_EQ(words[p], word_of(block.epoch, p, 1));
          ASSERT_TRUE(barrier());
        },
        [](const World::Block&) {});
  }
}

TEST(Litmus, ChunksOfAPipelinedAllReduceAreThereWhenTheirFlagsAre) {
  for (const LitmusShape shape : kTeams) {
    World world(shape.ranks, shape.blocks);
    const auto value = [](int epoch, int rank, std::size_t i) {
      return static_cast<float>((epoch * 31 + rank * 7) % 4096) + static_cast<float>(i % 64);
    };
    const auto count_of = [](const World::Block& block) { return 1 + (block.shared >> 8) % (kMemoryBytes / 4); };
    world.run(
        kEpochs / 4 / shape.ranks,
        [&](World::Block& block) {
          const std::size_t count = count_of(block), bytes = count * sizeof(float);
          std::vector<float> mine(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = value(block.epoch, block.peers.rank, i);
          // Slots of one chunk of 64 bytes: so few that they are reused within a call.
          const std::size_t slots = static_cast<std::size_t>(shape.ranks * shape.blocks) * ChunkCut::kFewestSlots * 64;
          PipelinedAllReduce<float, 4>{
              reinterpret_cast<const std::byte*>(mine.data()), block.output, {bytes, shape.ranks, shape.blocks, slots}}(
              block.group, block.peers, block.memory);
        },
        [&](const World::Block& block) {
          for (std::size_t i = 0; i < count_of(block); ++i) {
            float want = 0;
            for (int p = 0; p < shape.ranks; ++p) want += value(block.epoch, p, i);
            ASSERT_EQ(reinterpret_cast<const float*>(block.output)[i], want)
                << "epoch " << block.epoch << " rank " << block.peers.rank << " element " << i;
          }
        });
  }
}

// A thread that shares the packets of its rank with the threads of other blocks, as a block of a kernel does. (HostThread
// copies and sums all of them.)
struct BlockOfOne {
  int lane() const { return 0; }
  int lanes() const { return 1; }
  int block() const { return host.index; }
  int blocks() const { return host.count; }
  void sync() const {}
  bool all(bool vote) const { return vote; }

  HostThread host;
};

// Buffers of several rounds of staging memory, the last of which is shorter. A block may begin it while another block of
// its rank still copies out the round before.
TEST(Litmus, AShorterRoundLeavesAloneWhatOtherBlocksStillCopyOut) {
  constexpr std::size_t kStaging = 1024, kLargest = kMemoryBytes / sizeof(float);
  const auto value = [](int epoch, int rank, std::size_t i) {
    return static_cast<float>((epoch * 31 + rank * 7) % 4096) + static_cast<float>(i % 64);
  };
  for (const LitmusShape shape : {LitmusShape{2, 2}, {2, 3}, {3, 2}}) {
    World world(shape.ranks, shape.blocks);
    const auto count_of = [](const World::Block& block) { return 1 + (block.shared >> 8) % kLargest; };
    const auto broadcasts = [](const World::Block& block) { return block.epoch % 2 == 1; };
    world.run(
        kEpochs / 2 / shape.ranks,
        [&](World::Block& block) {
          CollectiveMemory memory = block.memory;
          memory.staging = memory.slots;
          memory.staging_bytes = kStaging;
          const std::size_t count = count_of(block);
          std::vector<float> mine(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = value(block.epoch, block.peers.rank, i);
          const auto* const input = reinterpret_cast<const std::byte*>(mine.data());
          const std::size_t bytes = count * sizeof(float);
          if (broadcasts(block))
            DirectBroadcast{input, block.output, bytes, 1, false}(BlockOfOne{block.group}, block.peers, memory);
          else
            DirectAllReduce<float, 4>{input, block.output, bytes, false}(BlockOfOne{block.group}, block.peers, memory);
        },
        [&](const World::Block& block) {
          for (std::size_t i = 0; i < count_of(block); ++i) {
            float want = value(block.epoch, 1, i);
            if (!broadcasts(block))
              for (int p = 0; p < shape.ranks; ++p) want += p == 1 ? 0 : value(block.epoch, p, i);
            ASSERT_EQ(reinterpret_cast<const float*>(block.output)[i], want)
                << "epoch " << block.epoch << " rank " << block.peers.rank << " element " << i;
          }
        });
  }
}

// Rank 0 runs alone; its peer has pushed everything and added nothing. It gives up its wait for the first sum, and by
// then has filled all slots of the peer and reused none.
TEST(Litmus, APipelinedAllReduceReusesNoSlotWhoseShareIsNotAdded) {
  constexpr std::size_t kChunk = 64, kChunks = 2 * ChunkCut::kFewestSlots;
  World world(2, 1);
  WaitRecord record;
  SlowPeers peers = world.peers(0);
  peers.waits = {&record, 1'000'000};
  const CollectiveMemory& memory = world.memory(0);
  const ChunkCut cut(2 * kChunks * kChunk, 2, 1, 2 * ChunkCut::kFewestSlots * kChunk);
  ASSERT_EQ(cut.slots(), ChunkCut::kFewestSlots);
  ASSERT_EQ(cut.chunks(0), kChunks);
  memory.shares_come[1] = kChunks;
  std::vector<std::byte> input(2 * kChunks * kChunk);
  for (std::size_t c = 0; c < 2 * kChunks; ++c) std::memset(input.data() + c * kChunk, static_cast<int>(c), kChunk);

  PipelinedAllReduce<float, 4>{input.data(), world.output(0), cut}(HostThread{}, peers, memory);

  EXPECT_EQ(record.state, WaitRecord::complete);
  EXPECT_EQ(record.from, 1);
  for (std::uint32_t c = 0; c < cut.slots(); ++c)
    EXPECT_EQ(peers.at(1, memory.slots)[cut.slot(0, 0, c)], static_cast<std::byte>(kChunks + c)) << "slot " << c;
}

}  // namespace
}  // namespace heddle
