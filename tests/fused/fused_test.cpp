// The fused operators on CPU ranks: threads here, and processes that run heddle_fused_cases.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/sanitizer.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/rank_processes.h"
#include "fabric/shm/threads.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/cases.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"
#include "kernels/dry_run.h"

namespace heddle {
namespace {

constexpr int kCourseCalls = kThreadSanitizer ? 20 : 30, kLateCalls = kThreadSanitizer ? 24 : 100;

void run_threads(int ranks, const FusedCourse& course) {
  ShmThreads world(ranks, {.heap_bytes = heap_bytes_of_fused_course(ranks), .deadline = std::chrono::seconds(60)});
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(2);
    Stream stream(pool);
    run_fused_course(*fabric, stream, course, [](const char*) {});
    member.barrier();
  });
}

class FusedOnThreads : public testing::TestWithParam<int> {};

TEST_P(FusedOnThreads, GivesTheBitsOfLinearForShardsOfAnyLengthAndManyCallsInARow) {
  run_threads(GetParam(), {.calls = kCourseCalls});
}

TEST_P(FusedOnThreads, SurvivesRanksThatAreLateAtRandom) {
  run_threads(GetParam(), {.calls = kLateCalls, .calls_in_flight = 20, .late_nanoseconds = 100'000, .seed = 9});
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedOnThreads, testing::Values(1, 2, 3, 4));

TEST(FusedOnProcesses, GivesTheSame) {
  constexpr int kRanks = 3;
  RankProcesses ranks(kRanks);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < kRanks; ++rank)
    processes.push_back(ranks.start(rank, {FUSED_CASES, "--fabric", "shm", "--calls", "40"}));
  for (const pid_t process : processes) {
    const RankProcesses::End end = ranks.end(process);
    EXPECT_EQ(end.code, 0) << end.error;
  }
}

// One rank, so that what is checked is the call alone.
class FusedCalls : public testing::Test {
 protected:
  ShmThreads world_{1, {.heap_bytes = std::size_t{1} << 20}};
  std::unique_ptr<Fabric> fabric_ = world_.rank(0);
  ThreadPool pool_{1}, transfer_pool_{1};
  Stream stream_{pool_}, transfers_{transfer_pool_};
  std::vector<float> x_ = std::vector<float>(64, 1), w_ = std::vector<float>(64, 2), y_ = std::vector<float>(64);

  Weight weight(std::int64_t n, std::int64_t k) const {
    return {.blocks = {{{w_.data(), n}}}, .out_features = n, .in_features = k};
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(FusedCalls, AGatherRefusesShapesThatDoNotFitAndSaysWhy) {
  AllGatherLinear fused(*fabric_, {0}, {.largest_shard = 4, .other = 4});
  AllGatherLinearParams good{
      .shards = Shards::even(4, 1), .x = {x_.data(), 4, 4, 4}, .weight = weight(3, 4), .y = {y_.data(), 4, 3, 3}};
  const auto refused = [&](const AllGatherLinearParams& params) {
    return refusal([&] { fused(params, stream_, transfers_); });
  };
  EXPECT_EQ(refused(good), "accepted");
  auto bad = good;
  bad.shards = Shards::even(5, 1);
  EXPECT_EQ(refused(bad), "all_gather_linear: a shard of 5, more than the limit 4");
  bad = good;
  bad.shards = Shards::even(3, 1);
  EXPECT_EQ(refused(bad), "all_gather_linear: shards hold 3 rows of A, which has 4");
  bad = good;
  bad.shards = Shards::even(4, 2);
  EXPECT_EQ(refused(bad), "all_gather_linear: shards of 2 ranks, in a team of 1");
  bad = good;
  bad.weight = weight(3, 5);
  EXPECT_EQ(refused(bad), "all_gather_linear: A is [4, 5], made for 4 columns");
  bad = good;
  bad.x.dtype = DType::bfloat16;
  EXPECT_EQ(refused(bad), "all_gather_linear: x is bfloat16, made for float32");
  bad = good;
  bad.x.data = nullptr;
  EXPECT_NE(refused(bad).find("x has no data"), std::string::npos);
  EXPECT_NE(refusal([&] { fused(good, stream_, stream_); }).find("needs a second stream"), std::string::npos);
  EXPECT_NE(refusal([&] { AllGatherLinear(*fabric_, {0}, {.largest_shard = 0, .other = 4}); }).find("at least 1"),
            std::string::npos);
  EXPECT_NE(refusal([&] { Shards::of(std::vector<std::int64_t>{2, -1}); }).find("rank 1 has -1"), std::string::npos);
  fabric_->synchronize(stream_);
}

TEST_F(FusedCalls, AReductionRefusesShapesThatDoNotFitAndSaysWhy) {
  LinearReduceScatter fused(*fabric_, {0}, {.largest_shard = 4, .n = 3});
  LinearAllReduce summed(*fabric_, {0}, {.m = 4, .n = 3});
  const LinearReduceScatterParams good{
      .rows = Shards::even(4, 1), .x = {x_.data(), 4, 4, 4}, .weight = weight(3, 4), .y = {y_.data(), 4, 3, 3}};
  const auto refused = [&](const LinearReduceScatterParams& params) {
    return refusal([&] { fused(params, stream_); });
  };
  EXPECT_EQ(refused(good), "accepted");
  auto bad = good;
  bad.rows = Shards::even(5, 1);
  EXPECT_EQ(refused(bad), "linear_reduce_scatter: a shard of 5 rows, more than the limit 4");
  bad = good;
  bad.rows = Shards::even(2, 1);
  EXPECT_EQ(refused(bad), "linear_reduce_scatter: shards hold 2 rows, x has 4");
  bad = good;
  bad.weight = weight(2, 4);
  EXPECT_EQ(refused(bad), "linear_reduce_scatter: the weight has 2 out features, made for 3");
  bad = good;
  bad.y.rows = 3;
  EXPECT_EQ(refused(bad), "linear_reduce_scatter: y is [3, 3] of float32, expected [4, 3] of float32 or x's float32");
  bad = good;
  bad.y.dtype = DType::bfloat16;
  EXPECT_EQ(refused(bad), "linear_reduce_scatter: y is [4, 3] of bfloat16, expected [4, 3] of float32 or x's float32");
  EXPECT_EQ(refusal([&] {
              summed({.x = {x_.data(), 5, 4, 4}, .weight = weight(3, 4), .y = {y_.data(), 5, 3, 3}}, stream_);
            }),
            "linear_all_reduce: a shard of 5 rows, more than the limit 4");
  fabric_->synchronize(stream_);
}

}  // namespace
}  // namespace heddle
