// The kernels of the fused operators with ranks as threads of one process, on GPUs of their own and on one that they
// share; skipped without.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/tracer.h"
#include "fabric/run_ranks.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/gpu_cases.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"
#include "kernels/attention/attention.h"
#include "machine/gpu.h"

namespace heddle {
namespace {

int fused_gpus() {
  return kHaveCuda ? static_cast<int>(discover_gpus().gpus.size()) : 0;
}

void run_gpu_ranks(int ranks, const FusedCourse& course) {
  run_ranks("nvlink-ipc", ranks, {.heap_bytes = heap_bytes_of_fused_gpu_course(ranks)},
            [&](Fabric& fabric, Stream& stream) { run_fused_gpu_course(fabric, stream, course, [](const char*) {}); });
}

TEST(FusedOnGpus, GivesTheSumsOfFloat64) {
  if (fused_gpus() < 2) GTEST_SKIP() << "needs two GPUs, there are " << fused_gpus();
  run_gpu_ranks(fused_gpus(), {.calls = 24});
}

class FusedOnOneGpu : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (fused_gpus() != 1) GTEST_SKIP() << "needs one GPU that all ranks share, there are " << fused_gpus();
  }
};

TEST_P(FusedOnOneGpu, GivesTheSumsOfFloat64ForShardsOfAnyLength) {
  run_gpu_ranks(GetParam(), {.calls = 18});
}

TEST_P(FusedOnOneGpu, SurvivesRanksThatAreLateAtRandom) {
  run_gpu_ranks(GetParam(), {.calls = 40, .calls_in_flight = 20, .late_nanoseconds = 300'000, .seed = 5});
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedOnOneGpu, testing::Values(1, 2, 4),
                         [](const auto& test) { return std::to_string(test.param); });

// Memory of a rank: operands of any numbers.
constexpr std::size_t kRankMemory = std::size_t{4} << 20, kWeightAt = std::size_t{1} << 20, kResultAt = 2 * kWeightAt;
constexpr std::int64_t kGemmWidth = 64;

// A call of two ranks. `make(fabric, memory)` returns a call, which takes a lane and a second stream.
// `before_calling(rank)` says whether the rank calls at all.
template <class Make, class BeforeCalling>
void call_on_two_ranks(const Make& make, std::chrono::milliseconds deadline, BeforeCalling before_calling) {
  run_ranks("nvlink-ipc", 2, {.heap_bytes = std::size_t{16} << 20, .deadline = deadline},
            [&](Fabric& fabric, Stream& stream) {
              Stream transfers(fabric.device());
              Buffer memory(kRankMemory, fabric.device());
              const auto call = make(fabric, memory.data());
              fabric.meet();
              if (!before_calling(fabric.rank())) return;
              call(Lane(stream, fabric.device_share().sms), transfers);
              fabric.synchronize(stream);
              fabric.meet();
            });
}

Weight square_weight(std::byte* memory) {
  return {.blocks = {{{memory + kWeightAt, kGemmWidth}}},
          .out_features = kGemmWidth,
          .in_features = kGemmWidth,
          .dtype = DType::bfloat16};
}

// With so many rows of each rank.
template <class BeforeCalling>
void gather_on_two_ranks(GatherVariant variant, std::int64_t rows, std::chrono::milliseconds deadline,
                         BeforeCalling before_calling) {
  const auto make = [&](Fabric& fabric, std::byte* at) {
    const auto fused = std::make_shared<AllGatherLinear>(
        fabric, Ranks{0, 1},
        AllGatherLinearLimits{.largest_shard = rows, .other = kGemmWidth, .dtype = DType::bfloat16});
    return [=](const Lane& lane, Stream& transfers) {
      (*fused)({.shards = Shards::even(2 * rows, 2),
                .x = {at, rows, kGemmWidth, kGemmWidth, DType::bfloat16},
                .weight = square_weight(at),
                .y = {at + kResultAt, 2 * rows, kGemmWidth, kGemmWidth, DType::bfloat16},
                .variant = variant},
               lane, transfers);
    };
  };
  call_on_two_ranks(make, deadline, before_calling);
}

// A rank that never calls: the other names it within the deadline, and its kernels end. `call_of(before_calling)` runs a
// call on two ranks.
constexpr std::chrono::milliseconds kStopDeadline{500};
template <class CallOf>
void expect_stopped_rank_is_named(const CallOf& call_of, const std::string& what, const std::string& waits_for) {
  constexpr std::chrono::seconds kStays{2}, kForStartAndEnd{8};
  std::string message;
  const auto begin = std::chrono::steady_clock::now();
  try {
    call_of([&](int rank) {
      // Stays beyond the deadline: else its own closing would be what is late first.
      if (rank == 1) std::this_thread::sleep_for(kStays);
      return rank != 1;
    });
  } catch (const std::exception& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("waited for rank 1 past the deadline of 0.5 s: " + waits_for), std::string::npos)
      << what << ": " << message;
  EXPECT_LE(std::chrono::steady_clock::now() - begin, kStays + kForStartAndEnd) << what;
}

void expect_stopped_gatherer_is_named(GatherVariant variant, std::int64_t rows, const std::string& waits_for) {
  expect_stopped_rank_is_named(
      [&](const auto& before_calling) { gather_on_two_ranks(variant, rows, kStopDeadline, before_calling); },
      std::string(name_of(variant)) + " of " + std::to_string(rows) + " rows", waits_for);
}

TEST(FusedOnOneGpuFailure, ARankThatStopsIsNamedWithinTheDeadline) {
  if (fused_gpus() < 1) GTEST_SKIP() << "needs a GPU";
  constexpr std::int64_t kFew = 64, kMany = 320;  // of each rank: gathered before the GEMM, and not
  for (const GatherVariant variant : {GatherVariant::pull, GatherVariant::push, GatherVariant::copy})
    expect_stopped_gatherer_is_named(variant, kMany, "gather: tile");
  expect_stopped_gatherer_is_named(GatherVariant::pull, kFew, "small M: piece");
  expect_stopped_gatherer_is_named(GatherVariant::push, kFew, "small M: shard");
}

// With rows of both ranks: few are summed by packets, many by tiles.
constexpr std::int64_t kFewSummed = 64, kManySummed = 640;

TEST(FusedOnOneGpuFailure, AReduceScatterNamesARankThatStops) {
  if (fused_gpus() < 1) GTEST_SKIP() << "needs a GPU";
  for (const std::int64_t rows : {kFewSummed, kManySummed})
    expect_stopped_rank_is_named(
        [&](const auto& before_calling) {
          const auto make = [&](Fabric& fabric, std::byte* at) {
            const Shards shards = Shards::even(rows, 2);
            const auto fused = std::make_shared<LinearReduceScatter>(
                fabric, Ranks{0, 1}, PartialLimits{.largest_shard = shards.largest(), .n = kGemmWidth});
            return [=](const Lane& lane, Stream&) {
              (*fused)({shards,
                        {at, rows, kGemmWidth, kGemmWidth, DType::bfloat16},
                        square_weight(at),
                        {at + kResultAt, shards.largest(), kGemmWidth, kGemmWidth, DType::float32}},
                       lane);
            };
          };
          call_on_two_ranks(make, kStopDeadline, before_calling);
        },
        "reduce-scatter of " + std::to_string(rows) + " rows", "");
}

TEST(FusedOnOneGpuFailure, AnAllReduceNamesARankThatStops) {
  if (fused_gpus() < 1) GTEST_SKIP() << "needs a GPU";
  for (const std::int64_t rows : {kFewSummed, kManySummed})
    expect_stopped_rank_is_named(
        [&](const auto& before_calling) {
          const auto make = [&](Fabric& fabric, std::byte* at) {
            const auto fused = std::make_shared<LinearAllReduce>(fabric, Ranks{0, 1},
                                                                 LinearAllReduceLimits{.m = rows, .n = kGemmWidth});
            return [=](const Lane& lane, Stream&) {
              (*fused)({{at, rows, kGemmWidth, kGemmWidth, DType::bfloat16},
                        square_weight(at),
                        {at + kResultAt, rows, kGemmWidth, kGemmWidth, DType::float32}},
                       lane);
            };
          };
          call_on_two_ranks(make, kStopDeadline, before_calling);
        },
        "all-reduce of " + std::to_string(rows) + " rows", "");
}

// Decode attention of two ranks, of one sequence with 64 keys on each.
template <class BeforeCalling>
void decode_on_two_ranks(DecodeVariant variant, std::chrono::milliseconds deadline, BeforeCalling before_calling) {
  constexpr int kHeads = 2, kHeadDim = 64, kKeys = 64;
  constexpr FlashDecodeLimits kLimits{.max_sequences = 1, .num_heads = kHeads, .num_kv_heads = 1, .head_dim = kHeadDim};
  run_ranks("nvlink-ipc", 2, {.heap_bytes = std::size_t{8} << 20, .deadline = deadline},
            [&](Fabric& fabric, Stream& stream) {
              Stream transfers(fabric.device());
              FlashDecode fused(fabric, {0, 1}, kLimits);
              Buffer memory(std::size_t{1} << 20, fabric.device()), plan(attention_plan_bytes(1, 1), fabric.device()),
                  scratch(attention_scratch_bytes(1, 1, kHeads, kHeadDim), fabric.device());
              enqueue_clear(stream, memory.data(), memory.size_bytes());
              enqueue_clear(stream, scratch.data(), scratch.size_bytes());
              std::byte* const at = memory.data();  // keys and values, q, y, and the arrays of the sequence
              const std::int32_t arrays[] = {0, 1, kKeys, 0};
              auto* const on_gpu = reinterpret_cast<std::int32_t*>(at + (768 << 10));
              enqueue_copy(stream, on_gpu, arrays, sizeof arrays);
              stream.synchronize();
              fabric.meet();
              if (!before_calling(fabric.rank())) return;
              const FlashDecodeParams params{.q = {at + (256 << 10), 1, kHeads * kHeadDim, kHeads * kHeadDim},
                                             .y = {at + (512 << 10), 1, kHeads * kHeadDim, kHeads * kHeadDim},
                                             .kv = {at, at, 1, kKeys, kHeadDim, DType::bfloat16},
                                             .sequences = {.query_start = on_gpu,
                                                           .context_len = on_gpu + 2,
                                                           .page_table = on_gpu + 3,
                                                           .num_sequences = 1,
                                                           .page_table_stride = 1,
                                                           .max_query_len = 1},
                                             .num_heads = kHeads,
                                             .scale = 1,
                                             .scratch = scratch.data(),
                                             .plan = plan.data()};
              const Lane lane(stream, fabric.device_share().sms);
              plan_attention({.kv = params.kv,
                              .sequences = params.sequences,
                              .num_tokens = 1,
                              .num_heads = kHeads,
                              .plan = plan.data(),
                              .plan_bytes = plan.size_bytes()},
                             lane);
              fused(params, variant, lane, transfers);
              fabric.synchronize(stream);
              fabric.meet();
            });
}

TEST(FusedOnOneGpuFailure, ADecodeNamesARankThatStops) {
  if (fused_gpus() < 1) GTEST_SKIP() << "needs a GPU";
  for (const DecodeVariant variant : {DecodeVariant::all_gather, DecodeVariant::waits, DecodeVariant::push})
    expect_stopped_rank_is_named(
        [&](const auto& before_calling) { decode_on_two_ranks(variant, kStopDeadline, before_calling); },
        "decode by " + std::string(name_of(variant)), "decode: part");
}

// A rank that calls late: the trace of the other's kernel shows the wait, its reason and its length.
void expect_wait_for_late_rank(GatherVariant variant, std::int64_t rows, std::string_view waits_for) {
  constexpr std::chrono::nanoseconds kLate = std::chrono::milliseconds(50);
  Tracer tracer;
  gather_on_two_ranks(variant, rows, std::chrono::seconds(10), [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(kLate);
    return true;
  });
  int found = 0;
  for (const GpuWaits& of_rank : tracer.gpu_waits())
    for (const GpuWait& wait : of_rank.waits) {
      if (wait.end - wait.begin < kLate.count() / 2) continue;
      EXPECT_EQ(wait.rank, 0);
      EXPECT_EQ(wait.from, 1);
      EXPECT_LT(wait.block, wait.blocks);
      if (wait.name == waits_for) ++found;
    }
  EXPECT_GT(found, 0) << name_of(variant) << ", " << rows << " rows: no wait " << waits_for;
}

TEST(FusedOnOneGpuTrace, ShowsWaitsForALateRankInsideKernels) {
  if (fused_gpus() < 1) GTEST_SKIP() << "needs a GPU";
  constexpr std::int64_t kFew = 64, kMany = 320;
  for (const GatherVariant variant : {GatherVariant::pull, GatherVariant::push, GatherVariant::copy})
    expect_wait_for_late_rank(variant, kMany, "gather: tile");
  expect_wait_for_late_rank(GatherVariant::pull, kFew, "small M: piece");
  expect_wait_for_late_rank(GatherVariant::push, kFew, "small M: shard");
}

}  // namespace
}  // namespace heddle
