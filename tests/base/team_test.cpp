#include "base/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

using namespace std::chrono_literals;

TEST(Team, MembersWaitForEachOther) {
  // A ring that cannot finish unless all members run concurrently.
  std::vector<std::atomic<std::uint64_t>> flags(5);
  run_team(5, [&](TeamMember& self) {
    EXPECT_EQ(self.size(), 5);
    const auto mine = static_cast<std::size_t>(self.rank());
    for (std::uint64_t round = 1; round <= 50; ++round) {
      flags[mine].store(round, std::memory_order_release);
      self.wait_until(flags[(mine + 1) % 5], round, "the next rank");
    }
  });
}

TEST(Team, BarrierPublishesWhatWasWrittenBefore) {
  std::vector<int> values(4, 0);  // not atomic: only the barrier orders the accesses
  run_team(4, [&](TeamMember& self) {
    for (int round = 1; round <= 20; ++round) {
      values[static_cast<std::size_t>(self.rank())] = round;
      self.barrier();
      for (const int value : values) EXPECT_EQ(value, round);
      self.barrier();
    }
  });
}

TEST(Team, AFailureEndsTheOthersWaits) {
  const std::atomic<std::uint64_t> never{0};
  EXPECT_THROW(run_team(3,
                        [&](TeamMember& self) {
                          if (self.rank() == 1) throw std::domain_error("rank 1");
                          self.wait_until(never, 1, "a flag");
                        }),
               std::domain_error);
}

TEST(Team, ADeadlineNamesRankTagExpectedAndObserved) {
  const std::atomic<std::uint64_t> stuck{2};
  try {
    run_team(
        2,
        [&](TeamMember& self) {
          if (self.rank() == 1) self.wait_until(stuck, 3, "flag 7");
        },
        20ms);
    FAIL();
  } catch (const Timeout& timeout) {
    EXPECT_STREQ(timeout.what(), "rank 1: waited for flag 7 past the deadline: expected 3, observed 2");
  }
}

TEST(Team, MayLiveLongerThanItsLongestWait) {
  std::atomic<std::uint64_t> flag{0};
  run_team(
      2,
      [&](TeamMember& self) {
        for (std::uint64_t round = 1; round <= 6; ++round) {
          if (self.rank() == 0) std::this_thread::sleep_for(20ms);
          if (self.rank() == 0) flag.store(round, std::memory_order_release);
          if (self.rank() == 1) self.wait_until(flag, round, "the other rank");
        }
      },
      5s);
  EXPECT_EQ(flag, 6u);
}

TEST(Team, NeedsAMember) {
  EXPECT_THROW(run_team(0, [](TeamMember&) {}), InvalidArgument);
}

}  // namespace
}  // namespace heddle
