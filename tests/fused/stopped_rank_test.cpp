// Each fused operator on CPU ranks of which one never calls it: the others end within the deadline and name that rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"

namespace heddle {
namespace {

constexpr int kStopRanks = 3, kStoppedRank = 1, kStopRows = 6,
              kStopWidth = 4;  // of A, which is as wide as its weight is high
constexpr std::chrono::milliseconds kStopLimit{300};
constexpr std::chrono::seconds kStopMargin{3};  // for a machine that does other work, too

// Of any of the operators; each is made with operands of ones.
struct StopOperands {
  std::vector<float> x = std::vector<float>(64, 1), w = x, y = x;
  std::vector<std::int32_t> context{1}, page{0}, starts{0, 1};

  Tensor rows_of_x(std::int64_t rows) { return {x.data(), rows, kStopWidth, kStopWidth, DType::float32}; }
  Tensor rows_of_y(std::int64_t rows) { return {y.data(), rows, kStopWidth, kStopWidth, DType::float32}; }
  Weight weight() const {
    return {.blocks = {{{w.data(), kStopWidth}}}, .out_features = kStopWidth, .in_features = kStopWidth};
  }
  PagedKv kv(KvShard shard) {
    return {.keys = w.data(),
            .values = w.data(),
            .num_kv_heads = 1,
            .page_size = kStopWidth,
            .head_dim = kStopWidth,
            .shard = shard};
  }
  PagedSequences sequence() const {
    return {.query_start = starts.data(),
            .context_len = context.data(),
            .page_table = page.data(),
            .num_sequences = 1,
            .page_table_stride = 1,
            .max_query_len = 1};
  }
};

using StopCall = std::function<void(Stream& stream, Stream& transfers)>;

// Makes the operator, as all ranks together do, and returns its call.
using MakeStopCall = std::function<StopCall(Fabric&, StopOperands&)>;

MakeStopCall gather_call(Sharded sharded, GatherVariant variant) {
  return [=](Fabric& fabric, StopOperands& of) -> StopCall {
    const bool of_rows = sharded == Sharded::rows;
    const Shards shards = Shards::even(of_rows ? kStopRows : kStopWidth, kStopRanks);
    const auto fused =
        std::make_shared<AllGatherLinear>(fabric, Ranks{0, 1, 2},
                                          AllGatherLinearLimits{.sharded = sharded,
                                                                .largest_shard = shards.largest(),
                                                                .other = of_rows ? kStopWidth : kStopRows,
                                                                .tile_rows = 1});
    const std::int64_t mine = shards.count(fabric.rank());
    const Tensor x{of.x.data(), of_rows ? mine : kStopRows, of_rows ? kStopWidth : mine, kStopWidth, DType::float32};
    return [=, &of](Stream& stream, Stream& transfers) {
      (*fused)({.shards = shards, .x = x, .weight = of.weight(), .y = of.rows_of_y(kStopRows), .variant = variant},
               stream, transfers);
    };
  };
}

StopCall reduce_scatter_call(Fabric& fabric, StopOperands& of) {
  const Shards rows = Shards::even(kStopRows, kStopRanks);
  const auto fused = std::make_shared<LinearReduceScatter>(
      fabric, Ranks{0, 1, 2}, PartialLimits{.largest_shard = rows.largest(), .n = kStopWidth});
  return [=, &of](Stream& stream, Stream&) {
    (*fused)({rows, of.rows_of_x(kStopRows), of.weight(), of.rows_of_y(rows.largest())}, stream);
  };
}

StopCall all_reduce_call(Fabric& fabric, StopOperands& of) {
  const auto fused =
      std::make_shared<LinearAllReduce>(fabric, Ranks{0, 1, 2}, LinearAllReduceLimits{.m = kStopRows, .n = kStopWidth});
  return [=, &of](Stream& stream, Stream&) {
    (*fused)({of.rows_of_x(kStopRows), of.weight(), of.rows_of_y(kStopRows)}, stream);
  };
}

std::shared_ptr<FlashDecode> make_flash_decode(Fabric& fabric) {
  return std::make_shared<FlashDecode>(
      fabric, Ranks{0, 1, 2},
      FlashDecodeLimits{.max_sequences = 1, .num_heads = 1, .num_kv_heads = 1, .head_dim = kStopWidth});
}

MakeStopCall decode_call(DecodeVariant variant) {
  return [=](Fabric& fabric, StopOperands& of) -> StopCall {
    return [=, &of, fused = make_flash_decode(fabric)](Stream& stream, Stream& transfers) {
      (*fused)({.q = of.rows_of_x(1),
                .y = of.rows_of_y(1),
                .kv = of.kv({}),
                .sequences = of.sequence(),
                .num_heads = 1,
                .scale = 1},
               variant, stream, transfers);
    };
  };
}

StopCall attend_call(Fabric& fabric, StopOperands& of) {
  const KvShard shard{fabric.rank(), kStopRanks};
  return [=, &of, fused = make_flash_decode(fabric)](Stream& stream, Stream&) {
    fused->attend({.q = of.rows_of_x(1),
                   .y = of.rows_of_y(1),
                   .kv = of.kv(shard),
                   .sequences = of.sequence(),
                   .num_heads = 1,
                   .scale = 1},
                  {.rank = shard.rank, .ranks = kStopRanks, .always_whole = true}, stream);
  };
}

struct StopCase {
  const char* name;
  MakeStopCall make;
  const char* waits_for;
};

class StoppedRank : public testing::TestWithParam<StopCase> {};

TEST_P(StoppedRank, IsNamedByTheOthersWithinTheDeadline) {
  ShmThreads world(kStopRanks, {.heap_bytes = std::size_t{4} << 20, .deadline = kStopLimit});
  std::vector<std::string> messages(kStopRanks);
  std::vector<std::chrono::steady_clock::duration> times(kStopRanks);
  run_team(kStopRanks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    StopOperands operands;
    const StopCall call = GetParam().make(*fabric, operands);  // outlives what is enqueued
    ThreadPool pool(1), transfer_pool(1);
    Stream stream(pool), transfers(transfer_pool);
    member.barrier();
    const auto begin = std::chrono::steady_clock::now();
    const auto rank = static_cast<std::size_t>(member.rank());
    if (member.rank() != kStoppedRank) {
      call(stream, transfers);
      try {
        fabric->synchronize(stream);
      } catch (const Timeout& timeout) {
        messages[rank] = timeout.what();
      }
      times[rank] = std::chrono::steady_clock::now() - begin;
    }
    member.barrier();
  });
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_THAT(messages[rank], testing::HasSubstr(fmt::format("waited for rank {} past the deadline of 0.3 s: {}",
                                                               kStoppedRank, GetParam().waits_for)));
    EXPECT_LE(times[rank], kStopLimit + kStopMargin);
  }
}

std::vector<StopCase> stop_cases() {
  return {{"GatherOfRowsByPull", gather_call(Sharded::rows, GatherVariant::pull), "gather: tile"},
          {"GatherOfRowsByPush", gather_call(Sharded::rows, GatherVariant::push), "gather: tile"},
          {"GatherOfRowsByCopy", gather_call(Sharded::rows, GatherVariant::copy), "gather: tile"},
          {"GatherOfColumnsByPull", gather_call(Sharded::columns, GatherVariant::pull), "gather: tile"},
          {"GatherOfColumnsByPush", gather_call(Sharded::columns, GatherVariant::push), "gather: tile"},
          {"GatherOfColumnsByCopy", gather_call(Sharded::columns, GatherVariant::copy), "gather: tile"},
          {"ReduceScatter", reduce_scatter_call, "reduce: tile"},
          {"AllReduce", all_reduce_call, "reduce: tile"},
          {"DecodeByAllGather", decode_call(DecodeVariant::all_gather), "decode: part"},
          {"DecodeByWaits", decode_call(DecodeVariant::waits), "decode: part"},
          {"DecodeByPush", decode_call(DecodeVariant::push), "decode: part"},
          {"Attend", attend_call, "decode: part"}};
}

INSTANTIATE_TEST_SUITE_P(EachOperator, StoppedRank, testing::ValuesIn(stop_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace heddle
