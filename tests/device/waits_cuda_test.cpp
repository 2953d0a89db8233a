// Waits inside kernels that are never over: they report, return, and leave the process its GPU. Skipped without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/pinned_buffer.h"
#include "device/spin.h"
#include "device/wait_watch.h"
#include "gpu_here.h"
#include "waiting_kernels.h"

namespace heddle {
namespace {

constexpr std::uint64_t kShort = 30'000'000, kNever = 3'600'000'000'000;  // nanoseconds

class WaitsOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    stream_.emplace(kFirstGpu);
    memory_ = PinnedBuffer(kRecordBytes + sizeof(int) * kWaitingBlocks * kWaitingThreads);
    record_ = std::construct_at(reinterpret_cast<WaitRecord*>(memory_.data()));
    stream_->set_wait_record(record_);
  }

  // What all threads have seen; 0: they differ. Throws Timeout where a wait does not end.
  int seen_by_all(PhaseEnds ends, WaitKind kind, std::uint64_t limit_nanoseconds) {
    auto* const seen = reinterpret_cast<int*>(memory_.data() + kRecordBytes);
    std::fill_n(seen, kWaitingBlocks * kWaitingThreads, 0);
    KernelWaits waits = waits_of(*stream_, "a test");
    waits.limit.nanoseconds = limit_nanoseconds;
    enqueue_wait(ends, kind, waits, seen, *stream_);
    stream_->synchronize(Deadline::after(std::chrono::minutes(1)));
    const bool all_alike =
        std::all_of(seen, seen + kWaitingBlocks * kWaitingThreads, [&](int s) { return s == *seen; });
    return all_alike ? *seen : 0;
  }

  static constexpr std::size_t kRecordBytes = 256;
  static constexpr int kEnded = 1, kGaveUp = 2;

  PinnedBuffer memory_;
  WaitRecord* record_ = nullptr;
  std::optional<Stream> stream_;
};

TEST_F(WaitsOnGpu, AWaitThatIsNeverOverReportsAndTheNextKernelWorks) {
  EXPECT_EQ(seen_by_all(PhaseEnds::at_once, WaitKind::deadline, kShort), kEnded);
  EXPECT_EQ(record_->state, WaitRecord::empty);
  EXPECT_EQ(seen_by_all(PhaseEnds::never, WaitKind::deadline, kShort), kGaveUp);
  EXPECT_EQ(record_->state, WaitRecord::complete);
  EXPECT_EQ(record_->rank, -1);
  EXPECT_TRUE(record_->from >= 0 && record_->from < kWaitingBlocks) << record_->from;
  EXPECT_EQ(record_->tag.view(), "a test");
  EXPECT_EQ(record_->expected, 0U);
  EXPECT_EQ(record_->observed, 1U);
  EXPECT_EQ(seen_by_all(PhaseEnds::at_once, WaitKind::deadline, kShort), kEnded);  // no trap has taken the context
}

TEST_F(WaitsOnGpu, OnceOneHasGivenUpOthersDoNotWaitForTheirDeadlines) {
  report(*record_, {.rank = -1, .from = 0, .tag = "another"}, 0, 0);
  // As a kernel has many waits, each must be short: the stream's deadline is a minute.
  EXPECT_EQ(seen_by_all(PhaseEnds::never, WaitKind::deadlines_in_a_row, kNever), kGaveUp);
  EXPECT_EQ(record_->tag.view(), "another");
}

TEST_F(WaitsOnGpu, AWaitForAnotherWarpsWordOutlastsARecord) {
  report(*record_, {.rank = -1, .from = 0, .tag = "another"}, 0, 0);
  EXPECT_EQ(seen_by_all(PhaseEnds::late, WaitKind::long_deadline, kNever), kEnded);
  EXPECT_EQ(seen_by_all(PhaseEnds::never, WaitKind::long_deadline, kShort), kGaveUp);  // and has a deadline of its own
}

}  // namespace
}  // namespace heddle
