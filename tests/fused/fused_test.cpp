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
#include "fabric/paced/paced_fabric.h"
#include "fabric/rank_processes.h"
#include "fabric/shm/threads.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/cases.h"
#include "fused/flash_decode/flash_decode.h"
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

// Each operator says so when it is made, as ranks between machines would.
TEST_F(FusedCalls, RanksWithoutPeerAddressesAreRefusedByName) {
  PacedFabric far(*fabric_, {1, 1}, {.bytes_per_second = 1e9});
  const std::string why = " needs a fabric with peer addresses; shm with emulated machine links has none";
  EXPECT_EQ(refusal([&] { AllGatherLinear(far, {0}, {.largest_shard = 4, .other = 4}); }), "all_gather_linear" + why);
  EXPECT_EQ(refusal([&] { LinearReduceScatter(far, {0}, {.largest_shard = 4, .n = 3}); }),
            "linear_reduce_scatter" + why);
  EXPECT_EQ(refusal([&] { LinearAllReduce(far, {0}, {.m = 4, .n = 3}); }), "linear_all_reduce" + why);
  EXPECT_EQ(
      refusal([&] { FlashDecode(far, {0}, {.max_sequences = 1, .num_heads = 1, .num_kv_heads = 1, .head_dim = 4}); }),
      "flash_decode" + why);
}

TEST_F(FusedCalls, ADecodeRefusesShapesThatDoNotFitAndSaysWhy) {
  const FlashDecodeLimits limits{.max_sequences = 2, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4, .value_dim = 3};
  FlashDecode fused(*fabric_, {0}, limits);
  const std::int32_t counts[] = {1, 1, 1}, pages[] = {0, 0, 0}, rows[] = {0, 1, 2, 3};
  const auto of = [&](int sequences, int heads) -> FlashDecodeParams {
    return {.q = {x_.data(), sequences, heads * 4, heads * 4},
            .y = {y_.data(), sequences, heads * 4, heads * 4},
            .kv = {.keys = w_.data(), .values = w_.data(), .num_kv_heads = 1, .page_size = 4, .head_dim = 4},
            .sequences = {.query_start = rows,
                          .context_len = counts,
                          .page_table = pages,
                          .num_sequences = sequences,
                          .page_table_stride = 1,
                          .max_query_len = 1},
            .num_heads = heads,
            .scale = 1,
            .value_dim = 3};
  };
  const auto refused = [&](const FlashDecodeParams& params) {
    return refusal([&] { fused(params, DecodeVariant::push, stream_, transfers_); });
  };
  EXPECT_EQ(refused(of(2, 2)), "accepted");
  EXPECT_EQ(refused(of(3, 2)), "flash_decode: 3 sequences, 2 heads on 1 KV heads of 4; made for 2, 2, 1 and 4");
  EXPECT_EQ(refused(of(2, 1)), "flash_decode: 2 sequences, 1 heads on 1 KV heads of 4; made for 2, 2, 1 and 4");
  FlashDecodeParams bad = of(1, 2);
  bad.value_dim = 0;
  EXPECT_EQ(refused(bad), "flash_decode: value_dim is 4; made for 3");
  bad.value_dim = 5;
  EXPECT_EQ(refused(bad), "flash_decode: value_dim is 5, expected 0 to head_dim, 4");
  bad = of(1, 2);
  bad.y.columns = 7;
  EXPECT_EQ(refused(bad), "flash_decode: y is [1, 7] of float32, expected [1, 8] of float32");
  EXPECT_NE(refusal([&] { fused(of(1, 2), DecodeVariant::waits, stream_, stream_); }).find("needs a second stream"),
            std::string::npos);
  FlashDecodeLimits unequal = limits;
  unequal.num_kv_heads = 3;
  EXPECT_NE(refusal([&] { FlashDecode(*fabric_, {0}, unequal); }).find("heads are a multiple of the KV heads"),
            std::string::npos);
  AttentionParams rows_of_shard{.q = of(1, 2).q,
                                .y = of(1, 2).y,
                                .kv = of(1, 2).kv,
                                .sequences = of(1, 2).sequences,
                                .num_heads = 2,
                                .scale = 1,
                                .value_dim = 3};
  rows_of_shard.kv.shard = {.rank = 1, .ranks = 2};
  EXPECT_EQ(refusal([&] { fused.attend(rows_of_shard, {}, stream_); }),
            "flash_decode: the cache of rank 1 of 2, at rank 0 of 1");
  fabric_->synchronize(stream_);
}

}  // namespace
}  // namespace heddle
