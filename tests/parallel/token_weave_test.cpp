// Two parts interleaved: what waits for what, the same bits as one after the other, and errors of the transfer lane.
#include "parallel/token_weave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "parallel/fused.h"
#include "parallel/operands.h"
#include "parallel/tensor.h"

namespace heddle {
namespace {

constexpr int kBlocks = 6, kRowsOfA = 3, kRowsOfB = 5;

struct WovenRows {
  std::vector<float> residual, delta, normalized;

  WovenRows(int rows, float start)
      : residual(ramp(static_cast<std::size_t>(rows) * kHidden, start)),
        delta(static_cast<std::size_t>(rows) * kHidden),
        normalized(static_cast<std::size_t>(rows) * kHidden) {}
  PartRows rows() {
    return {
        .residual = view(residual, kHidden), .delta = view(delta, kHidden), .normalized = view(normalized, kHidden)};
  }
};

// Part b's block reads what part a's block left, as attention reads keys: `written` is the cache.
struct ToyModel {
  std::vector<WovenRows>& parts;
  Stream& compute_stream;
  int rank;
  std::vector<float> weight = std::vector<float>(kHidden, 1.5f);
  std::vector<float> written = std::vector<float>(kHidden);

  void run(Strategy& strategy, TransferLane* transfers) {
    const std::vector<PartRows> rows{parts[0].rows(), parts[1].rows()};
    const auto norm = [&](int) { return Norm{weight.data(), 1e-5f}; };
    const auto compute = [&](int block, int part) {
      compute_stream.enqueue([this, block, part](ThreadPool&) {
        WovenRows& mine = parts[static_cast<std::size_t>(part)];
        for (std::size_t i = 0; i < mine.delta.size(); ++i)
          mine.delta[i] = mine.normalized[i] * static_cast<float>(block + rank + 1) + written[i % kHidden];
        if (part == 0) std::copy_n(mine.delta.begin(), kHidden, written.begin());
      });
    };
    const Lane lane(compute_stream);
    strategy.run({.count = kBlocks, .norm = norm, .compute = compute}, rows,
                 transfers == nullptr ? Execution(lane) : Execution(lane, *transfers));
  }
};

std::vector<WovenRows> made_parts() {
  return {WovenRows(kRowsOfA, 0.7f), WovenRows(kRowsOfB, 1.9f)};
}

// What a course adds the ranks' deltas with.
struct Sums {
  const char* name;
  std::optional<AllReduceNormRegime> fused;  // nothing: an all-reduce, then the norm
};
constexpr Sums kSums[] = {{"all_reduce", {}},
                          {"one_shot", AllReduceNormRegime::one_shot},
                          {"two_phase", AllReduceNormRegime::two_phase},
                          {"pipelined", AllReduceNormRegime::pipelined}};

// The last norm of all rows, which needs every row's residual, wherever it was.
std::vector<float> last_rows(Strategy& strategy, std::vector<WovenRows>& parts, const Lane& lane) {
  constexpr int kRows = kRowsOfA + kRowsOfB;
  std::vector<float> residual, delta, normalized(static_cast<std::size_t>(kRows) * kHidden), weight(kHidden, 1.5f);
  for (const WovenRows& part : parts) {
    residual.insert(residual.end(), part.residual.begin(), part.residual.end());
    delta.insert(delta.end(), part.delta.begin(), part.delta.end());
  }
  std::vector<std::int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  Arena arena(std::size_t{1} << 16);
  const Hidden wanted =
      strategy.wanted_rows({.residual = view(residual, kHidden), .delta = view(delta, kHidden)},
                           {.rows = rows.data(), .num_rows = kRows, .prefix_tokens = kRowsOfA}, arena, lane);
  strategy.normalize(wanted, {weight.data(), 1e-5f}, view(normalized, kHidden), lane);
  lane.stream.synchronize();
  return normalized;
}

// A lane sleeps at random.
class RandomSleep {
 public:
  explicit RandomSleep(unsigned seed) : random_(seed) {}

  void operator()(Stream& stream) {
    if (random_() % 4 != 0) return;
    const std::chrono::microseconds time(random_() % 300);
    stream.enqueue([time](ThreadPool&) { std::this_thread::sleep_for(time); });
  }

 private:
  std::minstd_rand random_;
};

// Sleeps at random on either lane, before each norm.
template <class Base>
class LateStrategy : public Base {
 public:
  LateStrategy(const ModelRank& place, RandomSleep& sleep) : Base(place, {0, 1}, 1), sleep_(sleep) {}

  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override {
    sleep_(lane.stream);
    Base::normalize(hidden, norm, normalized, lane);
  }

 private:
  RandomSleep& sleep_;
};

template <class Base>
std::unique_ptr<Strategy> strategy_of(const ModelRank& place, RandomSleep* sleep) {
  if (sleep != nullptr) return std::make_unique<LateStrategy<Base>>(place, *sleep);
  return std::make_unique<Base>(place, Slice{0, 1}, 1);
}

struct Course {
  Sums sums;
  bool in_two_parts = true;
  int steps = 3;
  std::optional<unsigned> late;  // seed of the delays
};

// What the last norm of both parts makes in each step on each rank.
std::vector<std::vector<float>> course(int ranks, const Course& of) {
  const Sums& sums = of.sums;
  const CommunicatorOptions options{.vendor = false};
  ShmThreads world(ranks, {.heap_bytes = Communicator::heap_bytes(ranks, {}, options) +
                                         (sums.fused ? AllReduceNorm::heap_bytes(ranks, {}) : 0)});
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(2);
    Stream stream(pool);
    Ranks team(static_cast<std::size_t>(ranks));
    std::iota(team.begin(), team.end(), 0);
    Communicator communicator(*fabric, team, stream, options);
    ModelRank place{.rank = member.rank(), .ranks = ranks, .communicator = &communicator};
    std::optional<AllReduceNorm> norm;
    std::optional<RandomSleep> sleep;
    if (of.late) sleep.emplace(*of.late + static_cast<unsigned>(member.rank()));
    std::unique_ptr<Strategy> strategy;
    if (sums.fused) {
      norm.emplace(*fabric, team, stream);
      norm->force(sums.fused);
      place.all_reduce_norm = &*norm;
      place.mode = TpMode::weave;
      strategy = strategy_of<FusedStrategy>(place, sleep ? &*sleep : nullptr);
    } else {
      strategy = strategy_of<TensorStrategy>(place, sleep ? &*sleep : nullptr);
    }
    TransferLane transfers(Stream(pool), Lane(stream), 1);
    std::vector<float>& all = results[static_cast<std::size_t>(member.rank())];
    for (int step = 0; step < of.steps; ++step) {
      std::vector<WovenRows> parts = made_parts();
      ToyModel model{parts, stream, member.rank()};
      if (sleep) (*sleep)(transfers.stream());
      model.run(*strategy, of.in_two_parts ? &transfers : nullptr);
      fabric->synchronize(stream);
      fabric->synchronize(transfers.stream());
      const std::vector<float> rows = last_rows(*strategy, parts, Lane(stream));
      fabric->synchronize(stream);
      all.insert(all.end(), rows.begin(), rows.end());
    }
  });
  return results;
}

class TokenWeave : public testing::TestWithParam<int> {};

TEST_P(TokenWeave, InterleavedPartsGiveTheBitsOfOneAfterTheOtherHoweverRanksAdd) {
  const auto expected = course(GetParam(), {.sums = kSums[0], .in_two_parts = false});
  EXPECT_EQ(expected.front(), expected.back());
  for (const Sums& sums : kSums) {
    EXPECT_EQ(course(GetParam(), {.sums = sums, .in_two_parts = false}), expected) << sums.name;
    for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(course(GetParam(), {.sums = sums}), expected) << sums.name;
  }
}

// Of each kind, by the ranks of one world.
std::size_t late_steps() {
  const char* const given = std::getenv("HEDDLE_LATE_STEPS");
  return given == nullptr ? 25 : std::stoul(given);
}

// Each of the ranks' lanes sleeps at random before its norms, so they overtake each other in every order. weave_soak.sh
// has 10 000 steps of each kind taken by ranks that meet once: slots, epochs and counters are those of a long run.
TEST_P(TokenWeave, LateLanesChangeNoBit) {
  const std::size_t num_steps = late_steps();
  const auto expected = course(GetParam(), {.sums = kSums[0], .in_two_parts = false, .steps = 1}).front();
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed());
  for (const Sums& sums : kSums)
    for (const std::vector<float>& steps :
         course(GetParam(), {.sums = sums, .steps = static_cast<int>(num_steps), .late = seed}))
      for (std::size_t step = 0; step < num_steps; ++step)
        ASSERT_TRUE(std::ranges::equal(std::span(steps).subspan(step * expected.size(), expected.size()), expected))
            << sums.name << ", step " << step << ", seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(, TokenWeave, testing::Values(1, 2, 3, 4),
                         [](const auto& test) { return "on_" + std::to_string(test.param) + "_ranks"; });

// Waits on the stream's worker until `count` of something have begun.
void wait_for(const std::atomic<int>& begun, int count, const char* what) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (begun.load() < count)
    if (deadline.passed()) throw_error<Timeout>("{} of {} {} have begun", begun.load(), count, what);
}

// Each exchange waits until the other part's block computes, and each block until the exchange of the other part's next
// one has begun.
class MeetingStrategy : public LocalStrategy {
 public:
  std::atomic<int> exchanges = 0, computations = 0;  // that have begun

  void run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) override {
    run_interleaved(*this, blocks, parts, execution);
  }
  void normalize(const Hidden&, const Norm&, Tensor, const Lane& lane) override {
    lane.stream.enqueue([this, call = calls_++](ThreadPool&) {
      ++exchanges;
      if (call >= kMostParts) wait_for(computations, call, "computations");
    });
  }

 private:
  int calls_ = 0;
};

TEST(TokenWeaveLanes, OnePartComputesWhileTheOthersSumsAreOnTheirWay) {
  MeetingStrategy strategy;
  ThreadPool pool(1);
  Stream stream(pool);
  TransferLane transfers(Stream(pool), Lane(stream), 1);
  std::vector<WovenRows> parts = made_parts();
  const std::vector<PartRows> rows{parts[0].rows(), parts[1].rows()};
  const auto norm = [](int) { return Norm{}; };
  const auto compute = [&](int block, int part) {
    stream.enqueue([&strategy, index = block * kMostParts + part](ThreadPool&) {
      ++strategy.computations;
      if (index + 1 < kBlocks * kMostParts) wait_for(strategy.exchanges, index + 2, "exchanges");
    });
  };
  strategy.run({.count = kBlocks, .norm = norm, .compute = compute}, rows, Execution(Lane(stream), transfers));
  stream.synchronize();
  transfers.stream().synchronize();
  EXPECT_EQ(strategy.computations.load(), kBlocks * kMostParts);
}

}  // namespace
}  // namespace heddle
