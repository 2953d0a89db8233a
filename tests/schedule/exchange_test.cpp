// Schedules between ranks: the proofs for all team sizes up to 64, and examples worked out by hand.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedule/all_to_all.h"
#include "schedule/expect_proved.h"
#include "schedule/ring.h"
#include "schedule/tree.h"

namespace heddle::schedule {
namespace {

using ::testing::ElementsAre;

template <class S>
class Gathers : public ::testing::Test {};
using Gathering = ::testing::Types<Ring, AllToAll, ClusterGather>;
TYPED_TEST_SUITE(Gathers, Gathering);

TYPED_TEST(Gathers, EveryPieceOnceInEveryTeam) {
  for (int size = 1; size <= kLargestTeam; ++size) {
    SCOPED_TRACE(size);
    if (TypeParam::supports(size)) expect_gather(TypeParam{size});
  }
}

TEST(Reduces, EveryContributionOnceInEveryTeam) {
  for (int size = 1; size <= kLargestTeam; ++size) {
    SCOPED_TRACE(size);
    if (ClusterReduce::supports(size)) expect_reduce(ClusterReduce{size});
  }
}

TEST(Supports, IsFalseForTeamsThatAScheduleCannotServe) {
  EXPECT_FALSE(Ring::supports(0) || AllToAll::supports(0) || Ring::supports(-3));
  EXPECT_TRUE(Ring::supports(1) && AllToAll::supports(7));
  for (const int size : {-4, 0, 3, 5, 6, 12, 24}) EXPECT_FALSE(ClusterReduce::supports(size)) << size;
  for (const int size : {1, 2, 4, 8, 16}) EXPECT_TRUE(ClusterGather::supports(size)) << size;
}

TEST(RingSchedule, NeedsOneBuffer) {
  for (int size = 2; size <= kLargestTeam; ++size) EXPECT_TRUE(reads_and_writes_apart(Ring{size})) << size;
}

TEST(AllToAllSchedule, BeginsWithTheStationaryBlockAndThenNeverReadsARankTwice) {
  for (int size = 1; size <= kLargestTeam; ++size) {
    const AllToAll s{size};
    for (int rank = 0; rank < size; ++rank)
      EXPECT_EQ(s.at(rank, 0), (Transfer{.send = rank, .receive = rank}));  // nothing is sent
    for (int step = 1; step < size; ++step) {
      std::vector<int> senders(static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; ++rank) ++senders[static_cast<std::size_t>(s.at(rank, step).to)];
      EXPECT_THAT(senders, ::testing::Each(1)) << size << " ranks, step " << step;
    }
  }
}

// ClusterFusion, Alg. 1 and 2, line by line, as the paper writes them.
TEST(Tree, IsThePapersAlgorithm) {
  for (const int n : {2, 4, 8, 16})
    for (int b = 0; b < n; ++b) {
      int step = 0;
      for (int stride = 1; stride < n; stride *= 2, ++step) {
        const int send_to = (b + stride) % n, recv_from = (b - stride + n) % n;
        EXPECT_EQ((ClusterReduce{n, Peers::offset}.at(b, step)),
                  (Transfer{.to = send_to, .from = recv_from, .reduce = true}));
        EXPECT_EQ((ClusterGather{n, Peers::offset}.at(b, step)),
                  (Transfer{.to = send_to, .from = recv_from, .receive = stride, .count = stride}));
      }
      EXPECT_EQ(ClusterReduce{n}.steps(), step);
      EXPECT_EQ(ClusterGather{n}.steps(), step);
    }
}

TEST(Tree, MovesTheBytesOfThePapersFormulas) {
  for (const int n : {2, 4, 8, 16})
    for (const std::int64_t bytes : {std::int64_t{4}, std::int64_t{32} << 10, std::int64_t{3} << 31}) {
      std::int64_t reduced = 0, gathered = 0;
      for (int rank = 0; rank < n; ++rank)
        for (int step = 0; step < ClusterReduce{n}.steps(); ++step) {
          reduced += bytes * ClusterReduce{n}.at(rank, step).count;
          gathered += bytes * ClusterGather{n}.at(rank, step).count;
        }
      EXPECT_EQ(cluster_reduce_traffic_bytes(bytes, n), reduced) << n;
      EXPECT_EQ(cluster_gather_traffic_bytes(bytes, n), gathered) << n;
    }
  EXPECT_EQ(cluster_reduce_traffic_bytes(1024, 1), 0);
  EXPECT_EQ(cluster_gather_traffic_bytes(1024, 1), 0);
}

TEST(Tree, GathersARotatedViewByOffsets) {
  const ClusterGather s{4, Peers::offset};
  std::vector<int> owners;
  for (int segment = 0; segment < 4; ++segment) owners.push_back(s.segment_of(1, segment));
  EXPECT_THAT(owners, ElementsAre(1, 0, 3, 2));  // rank 1's buffer, front to back
}

// The order of additions, as text: with pairs both ranks of a pair write the lower rank's sum first, and get one number.
TEST(Tree, PairsAddTheSameNumbersOnEveryRank) {
  for (const int n : {2, 4, 8, 16}) {
    std::vector<std::string> sums;
    for (int rank = 0; rank < n; ++rank) sums.push_back(std::to_string(rank));
    const ClusterReduce s{n};
    for (int step = 0; step < s.steps(); ++step) {
      const std::vector<std::string> sent = sums;
      for (int rank = 0; rank < n; ++rank) {
        const int from = s.at(rank, step).from;
        const auto [low, high] = std::minmax(rank, from);
        sums[static_cast<std::size_t>(rank)] =
            "(" + sent[static_cast<std::size_t>(low)] + "+" + sent[static_cast<std::size_t>(high)] + ")";
      }
    }
    EXPECT_THAT(sums, ::testing::Each(sums.front())) << n;
  }
}

// Tests of the proofs: each rejects a ring that breaks exactly its property.
struct Broken : Ring {
  Transfer change;  // added to each field of each transfer
  constexpr Transfer at(int rank, int step) const {
    Transfer t = Ring::at(rank, step);
    t.to = mod(t.to + change.to, size);
    t.from = mod(t.from + change.from, size);
    t.send = mod(t.send + change.send, size);
    t.receive = mod(t.receive + change.receive, size);
    return t;
  }
};
constexpr Broken broken(Transfer change) {
  return {{5}, change};
}
constexpr Transfer kSame{.to = 0, .from = 0};

TEST(Proofs, RefuseWhatIsBroken) {
  EXPECT_TRUE(peers_agree(broken(kSame)) && every_piece_arrives_once(broken(kSame)));
  EXPECT_FALSE(peers_agree(broken({.to = 1, .from = 0})));
  EXPECT_FALSE(peers_agree(broken({.to = 0, .from = 1})));
  EXPECT_FALSE(peers_agree(broken({.to = 0, .from = 0, .send = 1})));
  EXPECT_FALSE(nobody_waits_on_itself(broken({.to = -1, .from = 0})));
  EXPECT_FALSE(nobody_waits_on_itself(broken({.to = 0, .from = 1})));
  EXPECT_FALSE(only_sends_what_it_has(broken({.to = 0, .from = 0, .send = 1})));
  EXPECT_FALSE(every_piece_arrives_once(broken({.to = 0, .from = 0, .receive = 1})));
  EXPECT_FALSE(reads_and_writes_apart(broken({.to = 0, .from = 0, .receive = 1})));
  struct TooLong : Ring {
    constexpr int steps() const { return size; }
    constexpr Transfer at(int rank, int step) const { return Ring::at(rank, step % (size - 1)); }
  };
  EXPECT_FALSE(traffic_is_the_formula(TooLong{{4}}));
  EXPECT_FALSE(every_piece_arrives_once(TooLong{{4}}));
  struct CountsTwice : ClusterReduce {  // its stride does not double
    constexpr Transfer at(int rank, int) const { return ClusterReduce::at(rank, 0); }
  };
  EXPECT_FALSE(every_contribution_arrives_once(CountsTwice{{4}}));
}

}  // namespace
}  // namespace heddle::schedule
