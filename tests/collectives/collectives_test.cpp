#include <gmock/gmock.h>

#include <string>

#include "base/error.h"
#include "base/sanitizer.h"
#include "collectives/all_reduce.h"
#include "collectives/barrier.h"
#include "collectives/cases.h"
#include "collectives/ranks.h"

namespace heddle {
namespace {

struct Setting {
  Collective collective;
  int size;
};

class EveryCollective : public testing::TestWithParam<Setting> {};

TEST_P(EveryCollective, GivesTheBitsOfTheOracleByEveryAlgorithm) {
  const std::size_t largest = GetParam().size <= 8 ? 4099 : 599;  // two rounds of staging, where ranks share few cores
  const std::vector<CollectiveCase> cases = cases_of(GetParam().collective, largest);
  RankOptions options;
  options.communicator = {
      .low_latency_bytes = 32 << 10, .two_phase_bytes = 32 << 10, .staging_bytes = 2 << 10, .pipeline_bytes = 2 << 10};
  run_ranks(GetParam().size, options, [&](Communicator& communicator, Stream& stream) {
    const CaseBuffers own(communicator, Memory::any, largest), symmetric(communicator, Memory::symmetric, largest);
    std::uint32_t seed = 0;
    for (const CollectiveCase& c : cases)
      for (const Algorithm algorithm : algorithms_of(c.collective, DeviceKind::cpu))
        EXPECT_EQ(run_case(communicator, stream, c, {algorithm}, ++seed, c.memory == Memory::any ? own : symmetric),
                  "");
  });
}

constexpr int kMostRanks = kSanitizer ? 8 : 16;  // more take long on few cores, and show a sanitizer nothing new

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                      Collective::all_to_all, Collective::broadcast})
    for (const int size : {1, 2, 3, 4, 5, 8, 16})
      if (size <= kMostRanks) all.push_back({collective, size});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryCollective, testing::ValuesIn(settings()), [](const auto& one) {
  return std::string(name_of(one.param.collective)) + "_on_" + std::to_string(one.param.size);
});

TEST(SubTeams, WorkAtTheSameTimeAndInTheirOwnOrderOfRanks) {
  const Ranks teams[] = {{4, 1, 2}, {3}, {0, 5}};
  const auto team_of = [&](int rank) {
    for (const Ranks& team : teams)
      if (std::find(team.begin(), team.end(), rank) != team.end()) return team;
    return Ranks{};
  };
  run_ranks(6, {}, team_of, [](Communicator& communicator, Stream& stream) {
    for (const Collective collective : {Collective::all_reduce, Collective::all_to_all, Collective::broadcast})
      for (const Algorithm algorithm : algorithms_of(collective, DeviceKind::cpu)) {
        const CaseBuffers buffers(communicator, Memory::any, 100);
        EXPECT_EQ(run_case(communicator, stream, {collective, DType::float32, 100}, {algorithm}, 5, buffers), "");
      }
  });
}

TEST(HeapBytes, AreWhatACommunicatorTakes) {
  constexpr std::size_t kPage = 4096;
  for (const int size : {1, 3, 16}) {
    RankOptions options;
    options.fabric.heap_bytes = Communicator::heap_bytes(size, {});
    run_ranks(size, options, [](Communicator& communicator, Stream&) {
      EXPECT_THROW(communicator.fabric().allocate(kPage), Failure);
    });
  }
}

TEST(HeapBytes, OfEightGpusAreASmallPartOfTheDefaultHeap) {
  EXPECT_LE(Communicator::heap_bytes(8, {DeviceKind::cuda}), FabricOptions{}.heap_bytes / 8);
}

TEST(HeapBytes, ComeBackFromEveryCommunicatorThatEnds) {
  ShmThreads world(8, {});
  run_team(8, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    for (int made = 0; made < 100; ++made) {
      Communicator communicator(*fabric, {0, 1, 2, 3, 4, 5, 6, 7}, stream);
      std::vector<float> x(100, 1);
      for (const Algorithm algorithm : {Algorithm::low_latency, Algorithm::direct}) {
        communicator.force(Choice{algorithm});
        all_reduce(communicator, {x.data(), x.data(), x.size(), DType::float32}, stream);
      }
      fabric->synchronize(stream);
      ASSERT_THAT(x, testing::Each(64)) << "communicator " << made;
    }
    member.barrier();
  });
}

TEST(Choice, IsWhatRunsInThatMemory) {
  run_ranks(2, {}, [](Communicator& communicator, Stream&) {
    communicator.force(Choice{Algorithm::pipelined, kMaxBlocks});
    const auto choose = [&](Memory memory) {
      return communicator.choose(Collective::all_reduce, std::size_t{1} << 20, memory);
    };
    EXPECT_EQ(choose(Memory::symmetric).algorithm, Algorithm::pipelined);
    EXPECT_EQ(choose(Memory::any), (Choice{Algorithm::direct, 64}));
  });
}

TEST(Choice, HasNoMoreBlocksThanTheCallMayHave) {
  run_ranks(2, {}, [](Communicator& communicator, Stream&) {
    const auto choose = [&](int most_blocks, const std::optional<Choice>& asked = {}) {
      return communicator.choose(Collective::all_reduce, std::size_t{1} << 20, Memory::any, most_blocks, asked);
    };
    EXPECT_EQ(choose(7, Choice{Algorithm::direct, 64}), (Choice{Algorithm::direct, 7}));
    EXPECT_EQ(choose(7, Choice{Algorithm::pipelined, kMaxBlocks}), (Choice{Algorithm::direct, 7})) << "instead of it";
    communicator.force(Choice{Algorithm::direct, 64});
    EXPECT_EQ(choose(7), (Choice{Algorithm::direct, 7}));
    EXPECT_EQ(choose(100), (Choice{Algorithm::direct, 64}));
    EXPECT_EQ(choose(0), (Choice{Algorithm::direct, 64})) << "no limit";
  });
}

TEST(Barrier, LetsNobodyThroughBeforeAllHaveCome) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::put}) {
    std::atomic<int> came = 0;
    run_ranks(4, {}, [&](Communicator& communicator, Stream& stream) {
      communicator.force(Choice{algorithm});
      for (int round = 1; round <= 50; ++round) {
        stream.enqueue([&came](ThreadPool&) { ++came; });
        barrier(communicator, stream);
        stream.enqueue([&came, round](ThreadPool&) { EXPECT_GE(came, 4 * round); });
        barrier(communicator, stream);
      }
      communicator.fabric().synchronize(stream);
    });
  }
}

}  // namespace
}  // namespace heddle
