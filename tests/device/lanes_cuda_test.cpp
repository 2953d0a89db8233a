// Launches on lanes: a grid fits the lane's SMs, or there is none. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "gpu_here.h"
#include "lane_kernels.h"

namespace heddle {
namespace {

using testing::Each;

class LaunchesOnLanes : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    stream_.emplace(kFirstGpu);
    memory_ = Buffer((kCounts + 1) * sizeof(int), kFirstGpu);
  }

  struct Counted {
    std::vector<int> counts;
    int blocks;
  };

  Counted run(CountingKernel kernel, int blocks, int num_sms) {
    auto* const there = reinterpret_cast<int*>(memory_.data());
    std::vector<int> counts(kCounts + 1);
    enqueue_copy(*stream_, there, counts.data(), memory_.size_bytes());
    enqueue_counts(kernel, blocks, there, there + kCounts, {*stream_, num_sms});
    enqueue_copy(*stream_, counts.data(), there, memory_.size_bytes());
    stream_->synchronize(Deadline::after(std::chrono::minutes(1)));
    const int blocks_seen = counts.back();
    counts.pop_back();
    return {counts, blocks_seen};
  }

  static constexpr int kCounts = kCountedX * kCountedY;

  std::optional<Stream> stream_;
  Buffer memory_;
};

TEST_F(LaunchesOnLanes, AGridThatItsCallerMadeTooLargeIsRefused) {
  const int most = 3 * counting_blocks_of_sm(*stream_);
  for (const CountingKernel kernel : {CountingKernel::by_lane, CountingKernel::resident}) {
    EXPECT_EQ(run(kernel, most, 3).blocks, most);
    try {
      run(kernel, most + 1, 3);
      ADD_FAILURE() << "launched";
    } catch (const InvalidArgument& error) {
      EXPECT_STREQ(error.what(),
                   fmt::format("test: a grid of {} x 1 x 1 blocks on 3 SMs, which hold {}", most + 1, most).c_str());
    }
  }
}

// On the whole device blocks may come one after the other, but not those that wait for each other.
TEST_F(LaunchesOnLanes, AWholeDeviceRefusesBlocksThatCannotAllBeResident) {
  const int all = num_sms_of(kFirstGpu), most = all * counting_blocks_of_sm(*stream_);
  EXPECT_EQ(run(CountingKernel::by_lane, most + 1, all).blocks, most + 1);
  EXPECT_EQ(run(CountingKernel::resident, most, all).blocks, most);
  EXPECT_THROW(run(CountingKernel::resident, most + 1, all), InvalidArgument);
}

TEST_F(LaunchesOnLanes, AGridOfBlocksThatGoOnIsTrimmedAndDoesAll) {
  const int all = num_sms_of(kFirstGpu), of_sm = counting_blocks_of_sm(*stream_);
  for (const int num_sms : {1, 3, all / 2, all - 1}) {
    const Counted counted = run(CountingKernel::looping, 0, num_sms);
    EXPECT_THAT(counted.counts, Each(1)) << num_sms;
    EXPECT_LE(counted.blocks, num_sms * of_sm);
    EXPECT_GT(2 * counted.blocks, std::min(num_sms * of_sm, kCounts)) << num_sms;
  }
  const Counted counted = run(CountingKernel::looping, 0, all);
  EXPECT_THAT(counted.counts, Each(1));
  EXPECT_EQ(counted.blocks, kCounts);  // as it is
}

}  // namespace
}  // namespace heddle
