// Strategies of sequence parallelism on ranks that share one GPU, and on GPUs of their own; skipped where there are none.
#include <gtest/gtest.h>

#include "fabric/run_ranks.h"
#include "machine/gpu.h"
#include "parallel/sequence_ranks.h"

namespace heddle {
namespace {

// Every strategy that fits. Placements are names here: all ranks are on one node.
const SequenceCase kGpuSequences[] = {
    {{2, 1}, 4, 32, {20, 13}, 1, DType::bfloat16},
    {{1, 2}, 2, 64, {300, 200}, 2, DType::float16},
    {{2, 2}, 4, 128, {11, 8, 140, 3}, 1, DType::bfloat16},
    {{2, 2}, 2, 64, {6, 6, 200, 6}, 1, DType::bfloat16},
    {{4, 1}, 4, 64, {80, 70, 0, 50}, 1, DType::bfloat16},
    {{2, 2}, 4, 64, {11, 8, 230, 3}, 1, DType::bfloat16, PieceMask::causal},
};

int gpus_here() {
  return kHaveCuda ? static_cast<int>(discover_gpus().gpus.size()) : 0;
}

void expect_right_on(std::string_view fabric_name, const SequenceCase& of) {
  run_ranks(
      fabric_name, of.placement.size(), {.heap_bytes = std::size_t{32} << 20, .deadline = std::chrono::seconds(60)},
      [&](Fabric& fabric, Stream& stream) {
        for (const SequenceStrategy strategy : kSequenceStrategies) {
          if (!why_not(strategy, of.placement, of.num_heads).empty()) continue;
          EXPECT_EQ(run_layers(fabric, stream, strategy, of, 6), "") << name_of(strategy) << ", rank " << fabric.rank();
          EXPECT_EQ(run_replays(fabric, stream, strategy, of, 20), "")
              << name_of(strategy) << ", rank " << fabric.rank();
        }
      });
}

class SequenceAttentionGpu : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Cases, SequenceAttentionGpu, testing::Range(0, static_cast<int>(std::size(kGpuSequences))));

TEST_P(SequenceAttentionGpu, RanksThatShareOneGpuComputeTheAttentionOfTheWholeSequence) {
  if (gpus_here() != 1) GTEST_SKIP() << "needs one GPU that all ranks share, there are " << gpus_here();
  expect_right_on("nvlink-ipc", kGpuSequences[GetParam()]);
}

TEST_P(SequenceAttentionGpu, RanksOnGpusOfTheirOwnComputeTheAttentionOfTheWholeSequence) {
  const SequenceCase& of = kGpuSequences[GetParam()];
  if (gpus_here() < std::max(2, of.placement.size())) GTEST_SKIP() << "needs a GPU a rank, there are " << gpus_here();
  expect_right_on("nvlink", of);
}

}  // namespace
}  // namespace heddle
