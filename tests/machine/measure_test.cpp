#include "machine/measure.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "machine/measure_kernels.h"

namespace heddle {
namespace {

// A small buffer: these tests check sums and plausible numbers, not this machine's bandwidth.
constexpr std::int64_t kSmall = 1 << 20;

TEST(Measure, SumsEveryWord) {
  for (const std::size_t granules : {std::size_t{0}, std::size_t{1}, std::size_t{5}}) {
    struct alignas(64) Line {
      std::uint64_t words[8];
    };
    std::vector<Line> lines(granules * kSumGranule / 8);
    std::uint64_t* words = lines.empty() ? nullptr : lines[0].words;
    const std::size_t count = granules * kSumGranule;
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) expected += words[i] = ~std::uint64_t{0} / (i + 1);
    EXPECT_EQ(sum_words(words, count), expected) << count;
  }
}

TEST(Measure, ChainsComputeWhatTheyCount) {
  // Each lane has 12 chains that start at 0.5, 1.5, ... and execute two operations per step.
  const FmaRun run = run_fma_chains(0.5f, 3);
  const double chains = run.flops / 2 / 3;
  double sum = 0;
  for (int chain = 0; chain < 12; ++chain) {
    double x = 0.5 + chain;
    for (int step = 0; step < 3; ++step) x = x * 0.999 + 0.001;
    sum += x;
  }
  EXPECT_NEAR(run.result, chains / 12 * sum, chains * 1e-4);  // float32: 3 steps and a sum of fewer than 1000 terms
  EXPECT_NEAR(run_fma_chains(0.5f, 100000).result, chains, chains * 1e-3);  // they stay near 1 for ever
}

TEST(Measure, BandwidthIsANumberForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 7}) {  // 7: more than many machines have, and no divisor of the buffer
    const double rate = measure_memory_bandwidth({.threads = threads, .buffer_bytes = kSmall, .passes = 3});
    EXPECT_TRUE(std::isfinite(rate) && rate > 0) << rate;
  }
  EXPECT_GT(measure_memory_bandwidth({.buffer_bytes = 1, .passes = 1}), 0);  // rounded up to a granule
}

TEST(Measure, Float32RateIsANumber) {
  const double rate = measure_float32_rate({.threads = 2, .pass_seconds = 1e-4, .passes = 3});
  EXPECT_TRUE(std::isfinite(rate) && rate > 0) << rate;
}

TEST(Measure, RefusesSenselessOptions) {
  EXPECT_THROW(measure_memory_bandwidth({.threads = 0}), InvalidArgument);
  EXPECT_THROW(measure_memory_bandwidth({.threads = 1, .buffer_bytes = -1}), InvalidArgument);
  EXPECT_THROW(measure_memory_bandwidth({.threads = 1, .passes = 0}), InvalidArgument);
  EXPECT_THROW(measure_float32_rate({.threads = -1}), InvalidArgument);
  EXPECT_THROW(measure_float32_rate({.pass_seconds = std::nan("")}), InvalidArgument);
}

TEST(Measure, MemoryThatIsNotThereIsAFailure) {
  EXPECT_THROW(measure_memory_bandwidth({.buffer_bytes = std::int64_t{1} << 60}), Failure);
}

TEST(Measure, NamesTheVersionOfHighway) {
  EXPECT_THAT(highway_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(Measure, TheStoresBandwidthIsUsedWhereItMakesSense) {
  TunedStore store("", "machine", "1");
  store.put("memory_bandwidth_gbps.threads=3", 12.5);
  EXPECT_EQ(memory_bandwidth_gbps(store, 3), 12.5);
  store.put("memory_bandwidth_gbps.threads=1", -2);  // somebody wrote into the file
  const double measured = memory_bandwidth_gbps(store, 1);
  EXPECT_GT(measured, 0);
  EXPECT_EQ(memory_bandwidth_gbps(store, 1), measured);
}

}  // namespace
}  // namespace heddle
