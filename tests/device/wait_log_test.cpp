#include "device/wait_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace heddle {
namespace {

// A log as a GPU's memory holds it.
class HostLog {
 public:
  explicit HostLog(std::uint32_t capacity) : memory_(WaitLog::bytes_for(capacity) / sizeof(WaitLog) + 1) {
    log_ = std::construct_at(reinterpret_cast<WaitLog*>(memory_.data()), WaitLog{.capacity = capacity});
  }
  WaitLog& operator*() { return *log_; }
  WaitLog* operator->() { return log_; }

 private:
  std::vector<WaitLog> memory_;
  WaitLog* log_;
};

TEST(WaitLog, HoldsWhoWaitedForWhomAndWhen) {
  HostLog log(4);
  const WaitSlot slot = begin_stamp(*log, {.rank = 1, .from = 2, .tag = "gather"}, 7, 132, 1000);
  ASSERT_NE(slot, 0u);
  const WaitStamp& stamp = log->stamps()[0];
  EXPECT_EQ(stamp.end, 0u) << "still waiting";
  stamp_in(*log, slot).end = 1500;
  EXPECT_EQ(stamp.begin, 1000u);
  EXPECT_EQ(stamp.end, 1500u);
  EXPECT_EQ(stamp.rank, 1);
  EXPECT_EQ(stamp.from, 2);
  EXPECT_EQ(stamp.block, 7u);
  EXPECT_EQ(stamp.blocks, 132u);
  EXPECT_EQ(stamp.tag.view(), "gather");
}

TEST(WaitLog, ThatIsFullNeverBeginsAnew) {
  HostLog log(1);
  const WaitReason reason{.rank = 0, .from = 1, .tag = "a test"};
  log->taken = 0xffff'ffff;
  EXPECT_EQ(begin_stamp(*log, reason, 0, 1, 5), 0u);
  EXPECT_EQ(begin_stamp(*log, reason, 0, 1, 6), 0u);
  EXPECT_GE(log->taken, WaitLog::kMostCounted);
}

// Blocks are threads here. None writes behind the log, and none gets another's slot.
TEST(WaitLog, CountsWaitsThatFindNoRoom) {
  constexpr int kBlockThreads = 4, kEach = 500;
  constexpr std::uint32_t kCapacity = 1000;
  HostLog log(kCapacity);
  std::vector<std::thread> blocks;
  for (int block = 0; block < kBlockThreads; ++block)
    blocks.emplace_back([&log, block] {
      for (std::uint64_t i = 1; i <= kEach; ++i) {
        const WaitSlot slot = begin_stamp(*log, {.rank = 0, .from = 1, .tag = "a test"},
                                          static_cast<std::uint32_t>(block), kBlockThreads, i);
        if (slot != 0) stamp_in(*log, slot).end = i + static_cast<std::uint64_t>(block);
      }
    });
  for (std::thread& block : blocks) block.join();
  EXPECT_EQ(log->taken, kBlockThreads * kEach);
  for (std::size_t i = 0; i < kCapacity; ++i) {
    const WaitStamp& stamp = log->stamps()[i];
    EXPECT_GT(stamp.begin, 0u);
    EXPECT_EQ(stamp.end, stamp.begin + stamp.block);
  }
}

}  // namespace
}  // namespace heddle
