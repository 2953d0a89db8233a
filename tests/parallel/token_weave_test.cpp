// Two parts in turns: what waits for what, the same bits as one after the other, and errors of the transfer lane.
#include "parallel/token_weave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"
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

// The residuals and deltas of both parts on each rank, one after the other or in turns.
std::vector<std::vector<float>> course(int ranks, bool in_turns) {
  const CommunicatorOptions options{.vendor = false};
  ShmThreads world(ranks, {.heap_bytes = Communicator::heap_bytes(ranks, {}, options)});
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(2);
    Stream stream(pool);
    Ranks team(static_cast<std::size_t>(ranks));
    std::iota(team.begin(), team.end(), 0);
    Communicator communicator(*fabric, team, stream, options);
    TensorStrategy strategy(ModelRank{.ranks = ranks, .communicator = &communicator}, {0, 1}, 1);
    std::vector<WovenRows> parts = made_parts();
    TransferLane transfers(Stream(pool), Lane(stream), 1);
    ToyModel model{parts, stream, member.rank()};
    for (int repeat = 0; repeat < 3; ++repeat) model.run(strategy, in_turns ? &transfers : nullptr);
    fabric->synchronize(stream);
    fabric->synchronize(transfers.stream());
    std::vector<float>& all = results[static_cast<std::size_t>(member.rank())];
    for (const WovenRows& part : parts) {
      all.insert(all.end(), part.residual.begin(), part.residual.end());
      all.insert(all.end(), part.delta.begin(), part.delta.end());
    }
  });
  return results;
}

class TokenWeave : public testing::TestWithParam<int> {};

TEST_P(TokenWeave, InTurnsGiveTheBitsOfOneAfterTheOther) {
  const auto expected = course(GetParam(), false);
  for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(course(GetParam(), true), expected);
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
    run_in_turns(*this, blocks, parts, execution);
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
