// The figures of /live that are computed from snapshots.
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace heddle::server {
namespace {

TEST(RecentRates, RanksHaveTheRateOfWhatTheyRead) {
  RecentRates rates;
  const Clock::time_point start{};
  LoopSnapshot snapshot;
  snapshot.engine.rank_bytes = {0, 0};
  rates.update(snapshot, start);
  snapshot.engine.rank_bytes = {1e9, 3e9};
  snapshot.bytes_read = 4e9;
  snapshot.step_seconds = 0.5;
  const RecentRates::Rates now = rates.update(snapshot, start + std::chrono::milliseconds(900));
  EXPECT_EQ(now.gbps, 8);
  EXPECT_THAT(now.rank_gbps, testing::ElementsAre(2, 6));
}

}  // namespace
}  // namespace heddle::server
