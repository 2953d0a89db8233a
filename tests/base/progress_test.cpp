#include "base/progress.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

const ProgressState kHalf{
    .title = "prefill", .share = 0.5, .total = "7501 tokens", .detail = "433 tok/s", .seconds = 8.7};

TEST(ProgressLine, SaysShareRateAndTimeLeft) {
  EXPECT_EQ(progress_line(kHalf, 120),
            "prefill [===============               ]  50 % of 7501 tokens, 433 tok/s, 9 s left");
}

TEST(ProgressLine, NeverWrapsAndGivesUpTheBarFirst) {
  EXPECT_EQ(progress_line(kHalf, 70), "prefill [=========         ]  50 % of 7501 tokens, 433 tok/s, 9 s left");
  EXPECT_EQ(progress_line(kHalf, 55), "prefill  50 % of 7501 tokens, 433 tok/s, 9 s left");
  EXPECT_EQ(progress_line(kHalf, 20), "prefill  50 % of 750");
}

TEST(ProgressLine, SaysNoTimeLeftAtBeginningAndEnd) {
  ProgressState state = kHalf;
  state.share = 0;
  EXPECT_EQ(progress_line(state, 50), "prefill [        ]   0 % of 7501 tokens, 433 tok/s");
  state.share = 1;
  EXPECT_EQ(progress_line(state, 30), "prefill 100 % of 7501 tokens, ");
}

TEST(ProgressLine, CountsLongTimesInMinutesAndHours) {
  ProgressState state = kHalf;
  state.detail = "";
  state.seconds = 600;
  EXPECT_EQ(progress_line(state, 45), "prefill  50 % of 7501 tokens, 10 min left");
  state.seconds = 9000;
  EXPECT_EQ(progress_line(state, 45), "prefill  50 % of 7501 tokens, 2.5 h left");
}

}  // namespace
}  // namespace heddle
