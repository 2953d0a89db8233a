// ClusterReduce and ClusterGather on a GPU's clusters, and their twins through global memory. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "cluster_kernels.h"
#include "gpu_here.h"

namespace heddle {
namespace {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    stream_.emplace(kFirstGpu);
  }

  // The elements that went wrong.
  int run(ClusterTestCall test) {
    const std::size_t words = static_cast<std::size_t>(off_chip_vectors() * test.clusters);
    Buffer memory(words * sizeof(Vector16), kFirstGpu), wrong(sizeof(int), kFirstGpu);
    enqueue_clear(*stream_, memory.data(), memory.size_bytes());
    enqueue_clear(*stream_, wrong.data(), wrong.size_bytes());
    test.memory = reinterpret_cast<Vector16*>(memory.data());
    test.wrong = reinterpret_cast<int*>(wrong.data());
    enqueue_cluster_calls(test, *stream_);
    int count = -1;
    enqueue_copy(*stream_, &count, wrong.data(), sizeof count);
    stream_->synchronize(Deadline::after(std::chrono::minutes(1)));
    return count;
  }

  // The sums of random numbers that each block ends with.
  std::vector<std::vector<float>> sums(int blocks, ClusterWay way, std::vector<double>& exact) {
    constexpr std::size_t kNumbers = std::size_t{4} * kClusterTestVectors;
    std::minstd_rand random(static_cast<unsigned>(blocks));
    std::uniform_real_distribution<float> number(-1, 1);
    std::vector<float> in(kNumbers * static_cast<std::size_t>(blocks)), out(in.size());
    exact.assign(kNumbers, 0);
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = number(random);
      exact[i % kNumbers] += static_cast<double>(in[i]);
    }
    Buffer there(2 * in.size() * sizeof(float), kFirstGpu);
    auto* const vectors = reinterpret_cast<Vector16*>(there.data());
    enqueue_copy(*stream_, vectors, in.data(), in.size() * sizeof(float));
    EXPECT_EQ(run({.way = way, .blocks = blocks, .calls = 3, .in = vectors, .out = vectors + in.size() / 4}), 0);
    enqueue_copy(*stream_, out.data(), vectors + in.size() / 4, out.size() * sizeof(float));
    stream_->synchronize();
    std::vector<std::vector<float>> of_blocks;
    for (int block = 0; block < blocks; ++block) {
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(kNumbers) * block;
      of_blocks.emplace_back(first, first + kNumbers);
    }
    return of_blocks;
  }

  std::optional<Stream> stream_;
};

constexpr ClusterWay kWays[] = {ClusterWay::pairs,   ClusterWay::offset,    ClusterWay::directly,
                                ClusterWay::in_bulk, ClusterWay::two_steps, ClusterWay::by_packets,
                                ClusterWay::by_flags};

class ClustersOnGpu : public OnGpu, public testing::WithParamInterface<std::tuple<int, ClusterWay>> {};
INSTANTIATE_TEST_SUITE_P(Clusters, ClustersOnGpu,
                         testing::Combine(testing::Values(1, 2, 4, 8, 16), testing::ValuesIn(kWays)));

TEST_P(ClustersOnGpu, EveryBlockGetsTheSumAndTheMaximumOfAllInTenThousandCallsWithDelays) {
  const auto [blocks, way] = GetParam();
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
      EXPECT_EQ(run({.dtype = dtype, .op = op, .way = way, .blocks = blocks, .clusters = 3, .calls = 10'000}), 0)
          << name_of(dtype);
}

TEST_P(ClustersOnGpu, EveryBlockGathersTheSegmentsOfAllInTenThousandCallsWithDelays) {
  const auto [blocks, way] = GetParam();
  EXPECT_EQ(run({.reduces = false, .way = way, .blocks = blocks, .clusters = 3, .calls = 10'000}), 0);
}

TEST_P(ClustersOnGpu, CallsInARowWithoutDelaysNeverMix) {
  const auto [blocks, way] = GetParam();
  for (const bool reduces : {true, false})
    EXPECT_EQ(run({.reduces = reduces, .way = way, .blocks = blocks, .clusters = 5, .calls = 10'000, .dawdles = false}),
              0);
}

// Few enough for a sanitizer.
TEST_F(OnGpu, ClustersOfEverySizeReduceAndGatherAFewTimes) {
  for (const int blocks : {1, 2, 4, 8, 16})
    for (const ClusterWay way : kWays)
      for (const bool reduces : {true, false})
        EXPECT_EQ(run({.reduces = reduces, .way = way, .blocks = blocks, .clusters = 2, .calls = 6, .dawdles = false}),
                  0)
            << blocks;
}

// Only the paper's order gives blocks other bits.
TEST_F(OnGpu, AllBlocksOfAClusterGetTheSameBits) {
  for (const int blocks : {2, 4, 8, 16})
    for (const ClusterWay way : kWays) {
      std::vector<double> exact;
      const std::vector<std::vector<float>> of_blocks = sums(blocks, way, exact);
      if (way != ClusterWay::offset) {
        EXPECT_THAT(of_blocks, testing::Each(of_blocks.front())) << blocks;
      }
      for (const std::vector<float>& of_block : of_blocks)
        for (std::size_t i = 0; i < exact.size(); ++i)
          EXPECT_NEAR(static_cast<double>(of_block[i]), exact[i], blocks * 0x1p-22);
    }
}

}  // namespace
}  // namespace heddle
