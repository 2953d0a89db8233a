// Tensor parallelism on ranks that are threads: what it promises a model beyond LocalStrategy.
#include "parallel/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"
#include "kernels/dry_run.h"
#include "parallel/operands.h"
#include "parallel/tensor_split.h"

namespace heddle {
namespace {

constexpr int kRanks = 3;
constexpr int kVocabulary = 11;  // no multiple of the ranks

// This rank's rows of a matrix.
Weight rows_of(const std::vector<float>& matrix, Slice rows) {
  return {.blocks = {{{matrix.data() + rows.first * kHidden, rows.count}}},
          .out_features = rows.count,
          .in_features = kHidden};
}

constexpr auto kAsItIs = [](int, Communicator&) {};

// Calls rank_main(rank, strategy, stream) on every rank, whose communicator `prepare` has seen.
template <class RankMain, class Prepare = decltype(kAsItIs)>
void on_ranks(const RankMain& rank_main, const Prepare& prepare = kAsItIs) {
  const CommunicatorOptions options{.vendor = false};
  ShmThreads world(kRanks, {.heap_bytes = Communicator::heap_bytes(kRanks, {}, options)});
  run_team(kRanks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    Ranks team(kRanks);
    std::iota(team.begin(), team.end(), 0);
    Communicator communicator(*fabric, team, stream, options);
    prepare(member.rank(), communicator);
    TensorStrategy strategy(ModelRank{.communicator = &communicator}, even_slice(kVocabulary, member.rank(), kRanks),
                            kVocabulary);
    rank_main(member.rank(), strategy, stream);
    fabric->synchronize(stream);
  });
}

TEST(TensorStrategy, NormalisesTheResidualPlusTheSumOfAllPartials) {
  const std::vector<float> residual = ramp(2 * kHidden, 0.7f);
  std::vector<float> sum = residual;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> delta = ramp(2 * kHidden, 1.1f + static_cast<float>(rank));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += delta[i];
  }
  std::vector<std::vector<float>> residuals(kRanks, residual);
  on_ranks([&](int rank, Strategy& strategy, Stream& stream) {
    std::vector<float>& mine = residuals[static_cast<std::size_t>(rank)];
    std::vector<float> delta = ramp(2 * kHidden, 1.1f + static_cast<float>(rank)), weight(kHidden, 1),
                       normalized(2 * kHidden);
    strategy.normalize({.residual = view(mine, kHidden), .delta = view(delta, kHidden)}, {weight.data(), 1e-5f},
                       view(normalized, kHidden), stream);
    stream.synchronize();
  });
  for (const std::vector<float>& mine : residuals) {
    EXPECT_EQ(mine, residuals[0]);  // the same bits on every rank
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(mine[i], sum[i], 1e-5);
  }
}

// A rank that went by its own table would wait for others in another algorithm until the deadline.
TEST(TensorStrategy, SumsByTheAlgorithmThatRank0HasChosenWhateverItsOwnTableSays) {
  const Algorithm algorithms[] = {Algorithm::low_latency, Algorithm::two_phase, Algorithm::direct, Algorithm::put};
  for (const Algorithm chosen : {Algorithm::low_latency, Algorithm::two_phase, Algorithm::direct}) {
    on_ranks(
        [&](int rank, Strategy& strategy, Stream& stream) {
          const std::vector<float> weight(kHidden, 1);
          for (int step = 0; step < 3; ++step) {
            std::vector<float> residual(2 * kHidden, 0), normalized(2 * kHidden);
            std::vector<float> delta(2 * kHidden, static_cast<float>(rank + 1));
            strategy.begin_step({.sum_algorithm = static_cast<std::int16_t>(chosen)});
            strategy.normalize({.residual = view(residual, kHidden), .delta = view(delta, kHidden)},
                               {weight.data(), 1e-5f}, view(normalized, kHidden), stream);
            stream.synchronize();
            EXPECT_EQ(residual, std::vector<float>(2 * kHidden, 6)) << name_of(chosen) << ", rank " << rank;
          }
        },
        [&](int rank, Communicator& communicator) {
          communicator.use(Collective::all_reduce, {{.choice = {.algorithm = algorithms[rank]}}});
        });
  }
}

TEST(TensorStrategy, EmbedsTheTokensOfAllRanks) {
  const std::vector<float> table = ramp(static_cast<std::size_t>(kVocabulary) * kHidden, 0.3f);
  const std::vector<std::int32_t> tokens = {0, 10, 3, 4, 7, 8, 3};
  on_ranks([&](int rank, Strategy& strategy, Stream& stream) {
    std::vector<float> y(tokens.size() * kHidden, std::nanf(""));
    strategy.embed(rows_of(table, even_slice(kVocabulary, rank, kRanks)), tokens.data(), view(y, kHidden), stream);
    stream.synchronize();
    for (std::size_t t = 0; t < tokens.size(); ++t)
      for (std::size_t i = 0; i < kHidden; ++i)
        EXPECT_EQ(y[t * kHidden + i], table[static_cast<std::size_t>(tokens[t]) * kHidden + i]);
  });
}

TEST(TensorStrategy, GivesEveryRankTheLogitsOfTheWholeVocabulary) {
  const std::vector<float> matrix = ramp(static_cast<std::size_t>(kVocabulary) * kHidden, 0.3f);
  on_ranks([&](int rank, Strategy& strategy, Stream& stream) {
    std::vector<float> x = ramp(2 * kHidden, 0.9f), y(2 * kVocabulary, std::nanf("")), whole(2 * kVocabulary);
    strategy.logits(view(x, kHidden), rows_of(matrix, even_slice(kVocabulary, rank, kRanks)), view(y, kVocabulary),
                    stream);
    LocalStrategy().logits(view(x, kHidden), rows_of(matrix, {0, kVocabulary}), view(whole, kVocabulary), stream);
    stream.synchronize();
    EXPECT_EQ(y, whole);
  });
}

TEST(TensorStrategy, ComputesByItselfInAWarmUp) {
  bool warms_up = true;
  TensorStrategy alone(ModelRank{.alone = &warms_up}, {0, 4}, kVocabulary);
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<float> x(2 * kHidden, 1), y(2 * kVocabulary), matrix(4 * kHidden, 1);
  alone.logits(view(x, kHidden), rows_of(matrix, {0, 4}), view(y, kVocabulary), stream);
  stream.synchronize();
  EXPECT_EQ(y[0], kHidden);
  warms_up = false;
  EXPECT_THROW(alone.logits(view(x, kHidden), rows_of(matrix, {0, 4}), view(y, kVocabulary), stream), InvalidArgument);
  stream.synchronize();  // the product was enqueued
}

TEST(TensorStrategy, WaitsForNobodyInADryRun) {
  TensorStrategy alone(ModelRank{}, {0, 4}, kVocabulary);
  DryRun run{Device{}};
  std::vector<float> x(2 * kHidden), y(2 * kVocabulary), matrix(4 * kHidden);
  alone.logits(view(x, kHidden), rows_of(matrix, {0, 4}), view(y, kVocabulary), run.lane());
  EXPECT_EQ(run.calls().size(), 1u);
}

}  // namespace
}  // namespace heddle
