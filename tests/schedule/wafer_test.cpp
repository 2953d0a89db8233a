// Schedules on a line of cores.
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "schedule/expect_proved.h"
#include "schedule/k_tree.h"
#include "schedule/two_hop.h"

namespace heddle::schedule {
namespace {

using ::testing::ElementsAre;

TEST(TwoHopSchedule, ShowsEveryCoreEveryPieceAtTwoHopsAStep) {
  for (int size = 3; size <= kLargestTeam; ++size) {
    SCOPED_TRACE(size);
    const TwoHop s{size};
    expect_gather(s);
    EXPECT_TRUE(reads_and_writes_apart(s));
    EXPECT_TRUE(all_ways_are_two_hops_at_most(s));
    EXPECT_TRUE(no_link_carries_two(s));
  }
}

TEST(TwoHopSchedule, IsOneRingThroughAllCores) {
  for (const int size : {3, 4, 5, 64, 65, 660, 850'000}) {
    const TwoHop s{size};
    int core = 0;
    for (int i = 0; i < size; ++i) {
      ASSERT_EQ(s.position(core), i) << size;
      ASSERT_EQ(s.core_at(i), core) << size;
      ASSERT_EQ(s.receive_index(s.send_index(core)), core) << size;
      core = s.send_index(core);
    }
    EXPECT_EQ(core, 0) << size;
  }
}

TEST(TwoHopSchedule,
     IsThePapersExampleOfFiveCores) {  // WaferLLM, Figure 7: core 2 sends to core 4 and receives from core 0
  std::vector<int> ring;
  for (int i = 0; i < 5; ++i) ring.push_back(TwoHop{5}.core_at(i));
  EXPECT_THAT(ring, ElementsAre(0, 2, 4, 3, 1));
  EXPECT_EQ(TwoHop{5}.send_index(2), 4);
  EXPECT_EQ(TwoHop{5}.receive_index(2), 0);
}

TEST(TwoHopSchedule, IsNotForFewerThanThreeCores) {
  for (const int size : {-1, 0, 1, 2}) EXPECT_FALSE(TwoHop::supports(size)) << size;
  EXPECT_TRUE(TwoHop::supports(3));
}

template <class Check>
void for_all_trees(Check check) {
  for (int size = 1; size <= kLargestTeam; ++size)
    for (int phases = 1; phases <= 8; ++phases) {
      SCOPED_TRACE(::testing::Message() << size << " cores, K = " << phases);
      check(KTree::of(size, phases));
    }
}

TEST(KTreeSchedule, AddsEveryCoresShareOnce) {
  for_all_trees([](const KTree& s) {
    expect_reduce(s);
    EXPECT_TRUE(reads_and_writes_apart(s));
  });
}

TEST(KTreeSchedule, HasTheLeastFanThatReachesAllCores) {
  const auto power = [](int base, int exponent) {
    double product = 1;
    for (int i = 0; i < exponent; ++i) product *= base;
    return product;
  };
  for_all_trees([&](const KTree& s) {
    EXPECT_GE(power(s.fan, s.phases), s.size);
    if (s.fan > 1) {
      EXPECT_LT(power(s.fan - 1, s.phases), s.size);
    }
    EXPECT_EQ(s.members(s.phases), 1);
  });
  EXPECT_EQ(KTree::of(850'000, 1).fan, 850'000);
  EXPECT_EQ(KTree::of(850'000, 2).fan, 922);
  EXPECT_EQ(KTree::of(2'147'483'647, 31).fan, 2);
}

TEST(KTreeSchedule, GroupsAreNeighboursWithTheirRootInTheMiddle) {
  const KTree s = KTree::of(11, 2);  // 4 a group: 0-3, 4-7, 8-10
  EXPECT_EQ(s.fan, 4);
  EXPECT_EQ(s.groups(0), 3);
  EXPECT_THAT((std::vector{s.group_size(0, 0), s.group_size(0, 1), s.group_size(0, 2)}), ElementsAre(4, 4, 3));
  EXPECT_THAT((std::vector{s.core(1, 0), s.core(1, 1), s.core(1, 2)}), ElementsAre(2, 6, 9));
  EXPECT_EQ(s.root(), 6);
}

// Section 6.1: about K/2 * N^(1/K) routing stages and N hops. With groups of f cores a phase p has ceil(f/2) stages of
// f^p hops, so all phases have less than N/2 * f/(f-1) + f/2 * K; the multicast has half the line.
TEST(KTreeSchedule, TakesTheStagesAndHopsOfThePaper) {
  for_all_trees([](const KTree& s) {
    if (s.size == 1) return;
    EXPECT_LE(s.reduce_steps(), s.phases * (s.fan + 1) / 2);
    int bound = std::max(s.root(), s.size - 1 - s.root());
    for (int phase = 0, stride = 1; phase < s.phases; ++phase, stride *= s.fan) bound += s.phase_steps(phase) * stride;
    EXPECT_LE(critical_hops(s), bound);
  });
  // Where N is f^K with odd f the root is the middle core and the numbers are round.
  EXPECT_EQ(KTree::of(81, 2).reduce_steps(), 2 * 5);  // two phases of ceil(9/2)
  EXPECT_EQ(critical_hops(KTree::of(81, 2)), 5 * 1 + 5 * 9 + 40);
  EXPECT_EQ(KTree::of(64, 1).reduce_steps(), 32);
  EXPECT_EQ(critical_hops(KTree::of(64, 1)), 32 + 32);  // N hops, from both ends to the middle and back
}

TEST(KTreeSchedule, NeedsOnePathAPhaseAtTheRootAndOneForTheMulticast) {
  for (const int phases : {1, 2, 3}) EXPECT_EQ(KTree::of(64, phases).paths_at_root(), phases + 1);
  EXPECT_EQ(KTree::of(3, 8).paths_at_root(),
            3);  // two phases have made one sum of three: the others have nothing to do
  EXPECT_EQ(KTree::of(1, 1).paths_at_root(), 0);
}

TEST(KTreeSchedule, EndsWithOneMulticastFromTheRoot) {
  for_all_trees([](const KTree& s) {
    EXPECT_EQ(s.steps() > 0, s.size > 1);
    if (s.size == 1) return;
    for (int core = 0; core < s.size; ++core)
      EXPECT_EQ(s.at(core, s.steps() - 1), core == s.root() ? Transfer{.to = kEverybody} : Transfer{.from = s.root()});
  });
}

TEST(KTreeSchedule, SupportsAnyTreeOfOneCoreOrMore) {
  EXPECT_TRUE(KTree::supports(1) && KTree::supports(850'000, 8));
  EXPECT_FALSE(KTree::supports(0) || KTree::supports(5, 0) || KTree::supports(-1, 2));
}

}  // namespace
}  // namespace heddle::schedule
