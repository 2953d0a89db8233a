// The operations of one_sided.h by groups of several lanes; each lane of each rank is a thread. ThreadSanitizer reports
// orders that the operations promise and do not keep.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/function_ref.h"
#include "base/team.h"
#include "device/one_sided.h"
#include "fabric/host_lanes.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

constexpr int kLaneRanks = 2, kLanes = 3, kLaneRounds = 100;
constexpr std::size_t kLaneWords = 20;  // of a message: lanes have unequal shares

struct Places {  // symmetric
  std::uint64_t inbox[kLaneWords];
  std::uint64_t flag, answer;
  Semaphore full, empty;
};

// Calls body(lanes, peers, places) on every lane of every rank.
void on_lanes(std::chrono::nanoseconds deadline, FunctionRef<void(const HostLanes&, const Peers&, Places&)> body) {
  ShmThreads world(kLaneRanks, {.heap_bytes = 1 << 16, .deadline = deadline});
  run_team(kLaneRanks, [&](TeamMember& rank) {
    const auto fabric = world.rank(rank.rank());
    auto& places = *reinterpret_cast<Places*>(fabric->allocate(sizeof(Places)).data);
    Peers peers = fabric->peers();
    peers.waits.looks_before_yield = 16;  // there are more lanes than cores
    LaneTeam team{kLanes};
    run_team(kLanes, [&](TeamMember& lane) { body(HostLanes(team, lane.rank()), peers, places); });
    rank.barrier();
  });
}

std::uint64_t message_word_of(int rank, int round, std::size_t i) {
  return static_cast<std::uint64_t>(rank) << 40 ^ static_cast<std::uint64_t>(round) << 8 ^ i;
}

// Each lane reads what another lane of the peer has put. `send` and `receive` tell that a message is there.
template <class Tell, class Hear>
int messages_wrong(const HostLanes& lanes, const Peers& peers, Places& places,
                   std::array<std::uint64_t, kLaneWords>& mine, const Tell& tell, const Hear& hear) {
  const int other = 1 - peers.rank;
  int wrong = 0;
  for (int round = 1; round <= kLaneRounds; ++round) {
    for (auto i = static_cast<std::size_t>(lanes.lane()); i < kLaneWords; i += kLanes)
      mine[i] = message_word_of(peers.rank, round, i);
    lanes.sync();
    put(lanes, peers, other, places.inbox, mine.data(), sizeof(mine));
    tell(other, round, true);
    if (!hear(other, round, true)) return -1;
    for (auto i = static_cast<std::size_t>(lanes.lane()); i < kLaneWords; i += kLanes)
      if (places.inbox[kLaneWords - 1 - i] != message_word_of(other, round, kLaneWords - 1 - i)) ++wrong;
    tell(other, round, false);
    if (!hear(other, round, false)) return -1;
  }
  return wrong;
}

TEST(LanesOfAGroup, PassMessagesByFlags) {
  std::array<std::array<std::uint64_t, kLaneWords>, kLaneRanks> messages{};
  on_lanes(std::chrono::seconds(60), [&](const HostLanes& lanes, const Peers& peers, Places& places) {
    const auto flag = [&](bool message) { return message ? &places.flag : &places.answer; };
    const auto tell = [&](int to, int round, bool message) {
      signal(lanes, peers, to, flag(message), static_cast<std::uint64_t>(round));
    };
    const auto hear = [&](int from, int round, bool message) {
      return wait_until(lanes, peers, from, flag(message), static_cast<std::uint64_t>(round), "message");
    };
    EXPECT_EQ(messages_wrong(lanes, peers, places, messages[static_cast<std::size_t>(peers.rank)], tell, hear), 0);
  });
}

TEST(LanesOfAGroup, PassMessagesBySemaphores) {
  std::array<std::array<std::uint64_t, kLaneWords>, kLaneRanks> messages{};
  on_lanes(std::chrono::seconds(60), [&](const HostLanes& lanes, const Peers& peers, Places& places) {
    const auto semaphore = [&](bool message) { return message ? &places.full : &places.empty; };
    const auto tell = [&](int to, int, bool message) { signal_next(lanes, peers, to, semaphore(message)); };
    const auto hear = [&](int from, int, bool message) {
      return wait_next(lanes, peers, from, semaphore(message), "message");
    };
    EXPECT_EQ(messages_wrong(lanes, peers, places, messages[static_cast<std::size_t>(peers.rank)], tell, hear), 0);
  });
}

// A group that looks at a flag where its lanes wait for each other.
struct LanesThatLook {
  const std::uint64_t& flag;
  std::uint64_t& seen;

  int lane() const { return 0; }
  int lanes() const { return 1; }
  int block() const { return 0; }
  int blocks() const { return 1; }
  void sync() const { seen = flag; }
};

Peers alone_with(Places& places) {
  Peers peers;
  peers.heaps[0] = reinterpret_cast<std::byte*>(&places);
  return peers;
}

TEST(LanesOfAGroup, RaiseNoFlagBeforeAllHaveWritten) {
  Places places{};
  std::uint64_t seen = 99;
  signal(LanesThatLook{places.flag, seen}, alone_with(places), 0, &places.flag, 7);
  EXPECT_EQ(seen, 0U);
  EXPECT_EQ(places.flag, 7U);
  seen = 99;
  signal_next(LanesThatLook{places.full.arrived, seen}, alone_with(places), 0, &places.full);
  EXPECT_EQ(seen, 0U);
  EXPECT_EQ(places.full.arrived, 1U);
}

TEST(LanesOfAGroup, TakeAMessageOnce) {
  Places places{};
  WaitRecord record;
  Peers peers = alone_with(places);
  peers.waits = {&record, 1'000'000};
  signal_next(HostThread{}, peers, 0, &places.full);
  EXPECT_TRUE(wait_next(HostThread{}, peers, 0, &places.full, "first"));
  EXPECT_FALSE(wait_next(HostThread{}, peers, 0, &places.full, "second"));
}

// Only lane 0 looks at the flag: what it finds is everybody's answer.
TEST(LanesOfAGroup, AllHearThatAWaitHasGivenUp) {
  on_lanes(std::chrono::milliseconds(20), [&](const HostLanes& lanes, const Peers& peers, Places& places) {
    EXPECT_FALSE(wait_until(lanes, peers, 1 - peers.rank, &places.flag, 7, "never")) << "lane " << lanes.lane();
    EXPECT_FALSE(wait_next(lanes, peers, 1 - peers.rank, &places.full, "never")) << "lane " << lanes.lane();
    EXPECT_EQ(places.full.taken, 0U) << "a wait that gave up took a message";
  });
}

TEST(LanesOfAGroup, AgreeOnlyWhenEachDoes) {
  LaneTeam team{4};
  run_team(4, [&](TeamMember& member) {
    const HostLanes lanes(team, member.rank());
    for (int round = 0; round < 200; ++round) {
      const int refuses = round % 5;  // 4: nobody
      EXPECT_EQ(agree(lanes, lanes.lane() != refuses), refuses == 4) << "round " << round << ", lane " << lanes.lane();
    }
  });
}

TEST(LanesOfAGroup, ShareACopyWhateverItsSize) {
  for (const std::size_t bytes : {0, 1, 2, 3, 4, 7, 64, 1001}) {
    std::vector<std::byte> from(bytes + 8), to(bytes + 8);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
    LaneTeam team{3};
    run_team(3, [&](TeamMember& member) {
      const HostLanes lanes(team, member.rank());
      vector_copy(lanes, to.data(), from.data(), bytes);
      lanes.sync();
      EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0) << bytes << " bytes";
    });
    for (std::size_t i = bytes; i < to.size(); ++i) EXPECT_EQ(to[i], std::byte{0}) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace heddle
