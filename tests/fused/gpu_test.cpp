// The kernels of the fused operators with ranks as threads of one process, on GPUs of their own and on one that they
// share; skipped without.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "fabric/run_ranks.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/gpu_cases.h"
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

// A rank that never calls: the other names it within the deadline, and its kernels end.
void expect_stopped_rank_is_named(GatherVariant variant, std::int64_t rows, std::string_view waits_for) {
  constexpr std::int64_t kColumns = 64;
  std::string message;
  try {
    run_ranks(
        "nvlink-ipc", 2, {.heap_bytes = std::size_t{8} << 20, .deadline = std::chrono::milliseconds(500)},
        [&](Fabric& fabric, Stream& stream) {
          Stream transfers(fabric.device());
          AllGatherLinear fused(fabric, {0, 1}, {.largest_shard = rows, .other = kColumns, .dtype = DType::bfloat16});
          Buffer memory(std::size_t{4} << 20, fabric.device());
          fabric.meet();
          // Stays beyond the deadline: else its own closing would be what is late first.
          if (fabric.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(2));
          std::byte* const at = memory.data();
          fused({.shards = Shards::even(2 * rows, 2),
                 .x = {at, rows, kColumns, kColumns, DType::bfloat16},
                 .weight = {.blocks = {{{at + (1 << 20), kColumns}}},
                            .out_features = kColumns,
                            .in_features = kColumns,
                            .dtype = DType::bfloat16},
                 .y = {at + (2 << 20), 2 * rows, kColumns, kColumns, DType::bfloat16},
                 .variant = variant},
                Lane(stream, fabric.device_share().sms), transfers);
          fabric.synchronize(stream);
        });
  } catch (const std::exception& error) {
    message = error.what();
  }
  EXPECT_NE(message.find(waits_for), std::string::npos) << name_of(variant) << ", " << rows << " rows: " << message;
}

TEST(FusedOnOneGpuFailure, ARankThatStopsIsNamedWithinTheDeadline) {
  if (fused_gpus() < 1) GTEST_SKIP() << "needs a GPU";
  constexpr std::int64_t kFew = 64, kMany = 320;  // of each rank: gathered before the GEMM, and not
  for (const GatherVariant variant : {GatherVariant::pull, GatherVariant::push, GatherVariant::copy})
    expect_stopped_rank_is_named(variant, kMany, "gather: tile");
  expect_stopped_rank_is_named(GatherVariant::pull, kFew, "small M: piece");
  expect_stopped_rank_is_named(GatherVariant::push, kFew, "small M: shard");
}

}  // namespace
}  // namespace heddle
