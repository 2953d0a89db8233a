// ClusterReduce and ClusterGather on the model of a cluster. Under ThreadSanitizer it also shows that barriers and slots
// alone order all accesses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "cluster_model.h"
#include "device/cluster/cluster_gather.h"
#include "device/cluster/cluster_reduce.h"
#include "device/wait_watch.h"
#include "schedule/tree.h"

namespace heddle {
namespace {

using schedule::Peers;
using testing::Each;

constexpr int kVectors = 6;  // the longest buffer
constexpr int kSlots = 2;
constexpr int kMaxBlocks = 16;

struct Shared {
  ReduceBarriers<MbarrierModel> reduce;
  GatherBarriers<MbarrierModel> gather;
  Vector16 slots[kSlots * kVectors];
  Vector16 segments[2 * kMaxBlocks * kVectors];
};
using Cluster = ClusterModel<Shared>;
using Reducer = ClusterReducer<Cluster::Team, MbarrierModel, kSlots>;
using Gatherer = ClusterGatherer<Cluster::Team, MbarrierModel>;

void prepare(const Cluster::Team& team, Shared& shared) {
  shared.reduce.init(team);
  shared.gather.init();
}

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(x);
  else
    return to_float16(x);
}

template <class T>
constexpr int kElements = static_cast<int>(sizeof(Vector16) / sizeof(T));

template <class T>
std::vector<float> numbers_of(const Vector16* vectors, int count) {
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) {
    T elements[kElements<T>];
    std::memcpy(elements, vectors + i, sizeof(Vector16));
    for (const T& element : elements) numbers.push_back(to_float(element));
  }
  return numbers;
}

// Element `at` of block `rank` in a call: small whole numbers, whose sums are exact in every type.
float whole_number(int call, int rank, int at) {
  return static_cast<float>((call * 7 + rank * 5 + at * 3) % 17 - 8);
}

template <class T, class Number>
std::vector<Vector16> buffer_of(int count, const Number& number) {
  std::vector<Vector16> vectors(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    T elements[kElements<T>];
    for (int e = 0; e < kElements<T>; ++e) elements[e] = rounded<T>(number(i * kElements<T> + e));
    std::memcpy(&vectors[static_cast<std::size_t>(i)], elements, sizeof(Vector16));
  }
  return vectors;
}

int count_of_call(int call) {
  return 1 + call % kVectors;
}

template <ReduceOp kOp>
float expected(int call, int blocks, int at) {
  float result = whole_number(call, 0, at);
  for (int rank = 1; rank < blocks; ++rank) {
    const float other = whole_number(call, rank, at);
    result = kOp == ReduceOp::sum ? result + other : std::max(result, other);
  }
  return result;
}

enum class How { pairs, offset, directly, in_bulk, two_steps };

// Elements that differ from what they must be, over `calls` calls in a row, of all blocks.
template <class T, ReduceOp kOp>
int wrong_elements(int blocks, int calls, How how) {
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  const Peers peers = how == How::offset ? Peers::offset : Peers::pairs;
  Cluster cluster(blocks);
  std::atomic<int> wrong = 0;
  cluster.run(prepare, [&](const Cluster::Team& team, Shared& shared) {
    Reducer reducer(team, peers, shared.reduce, shared.slots, kVectors, waits);
    Gatherer gatherer(team, peers, shared.gather, shared.segments, kVectors, waits);
    for (int call = 0; call < calls; ++call) {
      // Two steps need a part for each block.
      const int count = how == How::two_steps ? (1 + call % 2) * blocks : count_of_call(call);
      std::vector<Vector16> data = buffer_of<T>(count, [&](int at) { return whole_number(call, team.block(), at); });
      team.dawdle();
      if (how == How::two_steps)
        gatherer.template reduce_in_two_steps<T, kOp>(data.data(), count);
      else if (how == How::directly || how == How::in_bulk)
        gatherer.template reduce_directly<T, kOp>(data.data(), count);
      else
        reducer.template reduce<T, kOp>(data.data(), count);
      const std::vector<float> numbers = numbers_of<T>(data.data(), count);
      for (int at = 0; at < static_cast<int>(numbers.size()); ++at)
        wrong += numbers[static_cast<std::size_t>(at)] == expected<kOp>(call, blocks, at) ? 0 : 1;
    }
  });
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  return wrong;
}

class OfEverySize : public testing::TestWithParam<std::tuple<int, How>> {};
INSTANTIATE_TEST_SUITE_P(Clusters, OfEverySize,
                         testing::Combine(testing::Values(1, 2, 4, 8, 16),
                                          testing::Values(How::pairs, How::offset, How::directly, How::in_bulk,
                                                          How::two_steps)));

TEST_P(OfEverySize, EveryBlockGetsTheSumAndTheMaximumOfAll) {
  const auto [blocks, how] = GetParam();
  const int calls = 24;
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(blocks, calls, how)), 0);
  EXPECT_EQ((wrong_elements<float, ReduceOp::max>(blocks, calls, how)), 0);
  EXPECT_EQ((wrong_elements<bfloat16, ReduceOp::sum>(blocks, calls, how)), 0);
  EXPECT_EQ((wrong_elements<float16, ReduceOp::max>(blocks, calls, how)), 0);
}

TEST_P(OfEverySize, EveryBlockGathersTheSegmentsOfAll) {
  const auto [blocks, how] = GetParam();
  if (how == How::two_steps) GTEST_SKIP() << "two steps only reduce";
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  Cluster cluster(blocks);
  std::atomic<int> wrong = 0;
  cluster.run(prepare, [&, how = how, blocks = blocks](const Cluster::Team& team, Shared& shared) {
    Gatherer gatherer(team, how == How::offset ? Peers::offset : Peers::pairs, shared.gather, shared.segments, kVectors,
                      waits);
    for (int call = 0; call < 30; ++call) {
      const int count = count_of_call(call);
      const auto segment = [&](int owner) {
        return buffer_of<float>(count, [&](int at) { return whole_number(call, owner, at); });
      };
      const std::vector<Vector16> mine = segment(team.block());
      team.dawdle();
      const Vector16* const all = how == How::in_bulk    ? gatherer.gather_in_bulk(mine.data(), count)
                                  : how == How::directly ? gatherer.gather_directly(mine.data(), count)
                                                         : gatherer.gather(mine.data(), count);
      team.dawdle();
      for (int owner = 0; owner < blocks; ++owner) {
        const int at = how == How::directly || how == How::in_bulk ? owner : gatherer.segment_of(owner);
        wrong += std::memcmp(all + at * count, segment(owner).data(),
                             sizeof(Vector16) * static_cast<std::size_t>(count)) == 0
                     ? 0
                     : 1;
      }
    }
  });
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  EXPECT_EQ(wrong, 0);
}

TEST(ClusterReduce, CallsInARowNeverMix) {
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(4, 600, How::pairs)), 0);
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(8, 400, How::pairs)), 0);
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(16, 100, How::pairs)), 0);
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(8, 200, How::offset)), 0);
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(4, 600, How::directly)), 0);
  EXPECT_EQ((wrong_elements<float, ReduceOp::sum>(8, 200, How::two_steps)), 0);
}

// The sums of one call by every block, as bytes, of numbers whose sum depends on the order.
std::vector<std::vector<float>> sums_of_blocks(int blocks, How how) {
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(blocks));
  Cluster cluster(blocks);
  cluster.run(prepare, [&](const Cluster::Team& team, Shared& shared) {
    Reducer reducer(team, how == How::offset ? Peers::offset : Peers::pairs, shared.reduce, shared.slots, kVectors,
                    waits);
    Gatherer gatherer(team, Peers::pairs, shared.gather, shared.segments, kVectors, waits);
    std::minstd_rand random(static_cast<unsigned>(team.block()) + 1);
    std::uniform_real_distribution<float> number(-1, 1);
    std::vector<Vector16> data = buffer_of<float>(kVectors, [&](int) { return number(random); });
    if (how == How::directly)
      gatherer.reduce_directly<float, ReduceOp::sum>(data.data(), kVectors);
    else
      reducer.reduce<float, ReduceOp::sum>(data.data(), kVectors);
    sums[static_cast<std::size_t>(team.block())] = numbers_of<float>(data.data(), kVectors);
  });
  return sums;
}

TEST(ClusterReduce, GivesAllBlocksTheSameBitsByPairsAndDirectly) {
  for (const int blocks : {2, 4, 8, 16})
    for (const How how : {How::pairs, How::directly}) {
      const std::vector<std::vector<float>> sums = sums_of_blocks(blocks, how);
      EXPECT_THAT(sums, Each(sums.front())) << blocks;
    }
}

TEST(ClusterReduce, ByThePapersOrderGivesBlocksOtherLowBits) {
  const std::vector<std::vector<float>> sums = sums_of_blocks(16, How::offset);
  EXPECT_THAT(sums, testing::Not(Each(sums.front())));
  for (std::size_t at = 0; at < sums.front().size(); ++at)
    for (const std::vector<float>& of_block : sums) EXPECT_NEAR(of_block[at], sums.front()[at], 16 * 0x1p-23);
}

// Each block has a part for every block, itself too; calls of several lengths behind each other.
TEST(ClusterExchange, GivesEachBlockWhatAllHaveForIt) {
  for (const int blocks : {1, 2, 4, 8, 16}) {
    constexpr int kCalls = 40;
    WaitRecord record;
    const KernelWaits waits = waits_of_test(record);
    const auto number = [](int call, int from, int to, int at) {
      return static_cast<float>(((call * 16 + from) * 16 + to) * 32 + at);
    };
    Cluster cluster(blocks);
    std::atomic<int> wrong = 0;
    std::int64_t bytes = 0;
    for (int call = 0; call < kCalls; ++call)
      bytes += schedule::cluster_gather_traffic_bytes(16 * count_of_call(call), blocks);
    cluster.run(prepare, [&](const Cluster::Team& team, Shared& shared) {
      Gatherer gatherer(team, Peers::pairs, shared.gather, shared.segments, kVectors, waits);
      for (int call = 0; call < kCalls; ++call) {
        const int count = count_of_call(call), numbers = 4 * count;
        std::vector<Vector16> data = buffer_of<float>(
            blocks * count, [&](int at) { return number(call, team.block(), at / numbers, at % numbers); });
        team.dawdle();
        const Vector16* const all = gatherer.exchange(data.data(), count);
        const std::vector<float> got = numbers_of<float>(all, blocks * count);
        for (int at = 0; at < blocks * numbers; ++at)
          wrong += got[static_cast<std::size_t>(at)] == number(call, at / numbers, team.block(), at % numbers) ? 0 : 1;
      }
    });
    EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
    EXPECT_EQ(wrong, 0) << blocks;
    EXPECT_EQ(cluster.bytes_pushed(), bytes) << blocks;
  }
}

// ClusterFusion, section 3.2.
TEST(ClusterTraffic, IsWhatThePapersFormulasSay) {
  for (const int blocks : {1, 2, 4, 8, 16}) {
    WaitRecord record;
    const KernelWaits waits = waits_of_test(record);
    for (const bool reduces : {true, false}) {
      Cluster cluster(blocks);
      cluster.run(prepare, [&](const Cluster::Team& team, Shared& shared) {
        const std::vector<Vector16> data(kVectors);
        std::vector<Vector16> sums = data;
        if (reduces)
          Reducer(team, Peers::pairs, shared.reduce, shared.slots, kVectors, waits)
              .reduce<float, ReduceOp::sum>(sums.data(), kVectors);
        else
          Gatherer(team, Peers::pairs, shared.gather, shared.segments, kVectors, waits).gather(data.data(), kVectors);
      });
      const std::int64_t size = kVectors * static_cast<std::int64_t>(sizeof(Vector16));
      EXPECT_EQ(cluster.bytes_pushed(), reduces ? schedule::cluster_reduce_traffic_bytes(size, blocks)
                                                : schedule::cluster_gather_traffic_bytes(size, blocks));
    }
  }
}

TEST(Combined, HasTheSameBitsInBothOrdersAndHidesNoNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (const float a : {0.0f, -0.0f, 1.0f, -1.5f, infinity, -infinity, nan})
    for (const float b : {0.0f, -0.0f, 1.0f, -1.5f, infinity, -infinity, nan}) {
      EXPECT_EQ(bits(combined<ReduceOp::max>(a, b)), bits(combined<ReduceOp::max>(b, a))) << a << ", " << b;
      EXPECT_EQ(std::isnan(combined<ReduceOp::max>(a, b)), std::isnan(a) || std::isnan(b)) << a << ", " << b;
      if (!std::isnan(a) && !std::isnan(b)) {
        EXPECT_EQ(combined<ReduceOp::max>(a, b), std::max(a, b)) << a << ", " << b;
      }
    }
  EXPECT_FALSE(std::signbit(combined<ReduceOp::max>(-0.0f, 0.0f)));
}

TEST(ClusterReduce, ABlockThatNeverComesEndsTheWaitOfTheOthers) {
  WaitRecord record;
  KernelWaits waits = waits_of_test(record);
  waits.limit.nanoseconds = 1'000'000;
  Cluster cluster(2);
  cluster.run(prepare, [&](const Cluster::Team& team, Shared& shared) {
    if (team.block() == 1) return;
    std::vector<Vector16> data(1);
    Reducer(team, Peers::pairs, shared.reduce, shared.slots, kVectors, waits)
        .reduce<float, ReduceOp::sum>(data.data(), 1);
  });
  EXPECT_EQ(record.state, WaitRecord::complete);
}

}  // namespace
}  // namespace heddle
