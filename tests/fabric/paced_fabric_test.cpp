#include "fabric/paced/paced_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

using std::chrono::microseconds;

// Runs `member` on so many ranks that are threads.
void on_threads(int ranks, FunctionRef<void(Fabric&, Stream&)> member) {
  ShmThreads world(ranks, {.heap_bytes = std::size_t{1} << 16, .deadline = std::chrono::seconds(60)});
  run_team(ranks, [&](TeamMember& self) {
    const auto fabric = world.rank(self.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    member(*fabric, stream);
  });
}

TEST(LinkClocks, ATransferHoldsTheWayOutAndTheWayIn) {
  LinkClocks clocks{};
  EXPECT_EQ(reserve_links(clocks, 0, 1, 1000, 50), 1050);
  EXPECT_EQ(reserve_links(clocks, 0, 2, 1000, 50), 1100) << "the way out of machine 0 is taken";
  EXPECT_EQ(reserve_links(clocks, 2, 1, 1010, 10), 1060) << "the way into machine 1 is taken until 1050";
  EXPECT_EQ(reserve_links(clocks, 1, 0, 1010, 10), 1020) << "the other direction is free";
  EXPECT_EQ(reserve_links(clocks, 0, 1, 2000, 7), 2007);
}

// The clocks hold what links have carried, whatever the time of day.
TEST(PacedFabric, TransfersBetweenMachinesTakeTurnsOnTheirLinks) {
  constexpr std::size_t kBytes = 1000;  // 20 us at 50 MB/s
  std::vector<std::uint64_t> at_least(4);
  on_threads(4, [&](Fabric& inner, Stream& stream) {
    PacedFabric fabric(inner, {2, 2}, {.bytes_per_second = 50e6, .latency = microseconds(1)});
    SymmetricMemory memory(fabric, 4 * kBytes);
    std::vector<std::byte> mine(kBytes, std::byte(fabric.rank() + 1)), got(kBytes);
    const std::uint64_t begin = now_nanoseconds();
    const int across = (fabric.rank() + 2) % 4, beside = fabric.rank() ^ 1;
    for (const int peer : {across, beside})
      fabric.put(stream, peer, memory.data() + static_cast<std::size_t>(fabric.rank()) * kBytes, mine.data(), kBytes);
    fabric.barrier(stream);
    fabric.get(stream, across, got.data(), memory.data() + static_cast<std::size_t>(beside) * kBytes, 0);
    fabric.get(stream, across, got.data(), memory.data() + static_cast<std::size_t>(fabric.rank()) * kBytes, kBytes);
    fabric.synchronize(stream);
    at_least[static_cast<std::size_t>(fabric.rank())] = now_nanoseconds() - begin;
    EXPECT_EQ(got, mine) << "what this rank put there";
    for (const int peer : {across, beside})
      EXPECT_EQ(memory.data()[static_cast<std::size_t>(peer) * kBytes], std::byte(peer + 1));
    EXPECT_EQ(fabric.put_bytes()[static_cast<std::size_t>(across)], kBytes);
    EXPECT_EQ(fabric.got_bytes()[static_cast<std::size_t>(across)], kBytes);
    fabric.barrier(stream);
    fabric.synchronize(stream);
  });
  // Two ranks of a machine put and get across one after the other, each 20 us: no rank can be done sooner.
  EXPECT_THAT(at_least, testing::Each(testing::Ge(60'000u)));
}

TEST(PacedFabric, MessagesArriveAndWhatWasPutBeforeThemIsThere) {
  on_threads(3, [](Fabric& inner, Stream& stream) {
    PacedFabric fabric(inner, {3, 1}, {.bytes_per_second = 1e9, .latency = microseconds(5)});
    SymmetricMemory memory(fabric, 256);
    auto* const semaphore = reinterpret_cast<Semaphore*>(memory.data());
    auto* const word = reinterpret_cast<std::uint64_t*>(memory.data() + 128);
    const int next = (fabric.rank() + 1) % 3, previous = (fabric.rank() + 2) % 3;
    for (std::uint64_t round = 1; round <= 20; ++round) {
      const std::uint64_t value = 100 * round + static_cast<std::uint64_t>(fabric.rank());
      fabric.put(stream, next, word, &value, sizeof value);
      fabric.signal_next(stream, next, semaphore);
      fabric.wait_next(stream, previous, semaphore, "word");
      fabric.synchronize(stream);
      EXPECT_EQ(*word, 100 * round + static_cast<std::uint64_t>(previous));
      fabric.barrier(stream);
      fabric.synchronize(stream);
    }
  });
}

TEST(PacedFabric, TakesAnyNumberOfStreamsOneAfterTheOther) {
  on_threads(2, [](Fabric& inner, Stream&) {
    PacedFabric fabric(inner, {2, 1}, {.bytes_per_second = 1e9});
    SymmetricMemory memory(fabric, 8);
    ThreadPool pool(1);
    constexpr int kStreams = 3 * PacedFabric::kMostStreams;
    std::vector<std::unique_ptr<Stream>> streams;
    streams.reserve(kStreams);
    for (int i = 0; i < kStreams; ++i) {
      streams.push_back(std::make_unique<Stream>(pool));
      std::uint64_t word = 0;
      fabric.get(*streams.back(), 1 - fabric.rank(), &word, memory.data(), sizeof word);
      fabric.synchronize(*streams.back());
    }
    fabric.meet();
  });
}

TEST(PacedFabric, SaysThatItIsAnEmulationAndTakesNoTransfersFromKernels) {
  on_threads(2, [](Fabric& inner, Stream&) {
    const PacedFabric fabric(inner, {2, 1}, {.bytes_per_second = 1e9});
    EXPECT_EQ(fabric.name(), "shm with emulated machine links");
    EXPECT_FALSE(fabric.has(Capability::peer_addresses));
    EXPECT_FALSE(fabric.has(Capability::several_machines));
    EXPECT_THROW(static_cast<void>(fabric.peers()), InvalidArgument);
  });
}

// Whoever is first says so; the other rank ends for that reason.
TEST(PacedFabric, ATransferBeyondTheDeadlineEndsAtOnce) {
  on_threads(2, [](Fabric& inner, Stream& stream) {
    PacedFabric fabric(inner, {2, 1}, {.bytes_per_second = 1});  // 100 s, and the deadline is 60 s
    SymmetricMemory memory(fabric, 128);
    const std::vector<std::byte> bytes(100);
    const std::uint64_t begin = now_nanoseconds();
    fabric.put(stream, 1 - fabric.rank(), memory.data(), bytes.data(), bytes.size());
    EXPECT_THROW(fabric.synchronize(stream), Timeout);
    EXPECT_LT(now_nanoseconds() - begin, 30'000'000'000u);
  });
}

TEST(PacedFabric, RejectsAPlacementOfOtherRanksAndLinksThatAreNone) {
  on_threads(2, [](Fabric& inner, Stream&) {
    EXPECT_THROW(PacedFabric(inner, {2, 2}, {.bytes_per_second = 1e9}), InvalidArgument);
    EXPECT_THROW(PacedFabric(inner, {2, 1}, {.bytes_per_second = 0}), InvalidArgument);
    EXPECT_THROW(PacedFabric(inner, {2, 1}, {.bytes_per_second = 1, .latency = microseconds(-1)}), InvalidArgument);
    EXPECT_THROW(PacedFabric(inner, {2, 1}, {.bytes_per_second = 1, .latency = std::chrono::minutes(1)}),
                 InvalidArgument);
  });
}

}  // namespace
}  // namespace heddle
