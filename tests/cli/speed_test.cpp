#include "cli/speed.h"

#include <gtest/gtest.h>

#include "cli/generate/memory_share.h"

namespace heddle {
namespace {

using Clock = SpeedMeter::Clock;
using Seconds = std::chrono::seconds;

// A step that began `duration` ago. The rates in these tests are rounded so far that the test's own time does not show.
void add(SpeedMeter& meter, const StepStatistics& step, Seconds duration) {
  meter.add_step(step, Clock::now() - duration);
}

TEST(SpeedMeter, SaysPrefillDecodeAndTimeToTheFirstToken) {
  SpeedMeter meter;
  add(meter, {.num_prompt_tokens = 4000}, Seconds(10));
  add(meter, {.num_prompt_tokens = 3501, .num_sampled = 1}, Seconds(5));
  for (int i = 0; i < 53; ++i) add(meter, {.num_decoded = 1, .num_sampled = 1}, Seconds(4));
  EXPECT_EQ(meter.summary(), "prefill 7501 tokens, 500 tok/s; decode 54 tokens, 0.2 tok/s; TTFT 10 s")
      << "the first step began 10 s ago";
}

TEST(SpeedMeter, SharesOutAStepThatDoesBoth) {
  SpeedMeter meter;
  add(meter, {.num_prompt_tokens = 300, .num_decoded = 100, .num_sampled = 100}, Seconds(4));
  EXPECT_EQ(meter.summary(), "prefill 300 tokens, 100 tok/s; decode 100 tokens, 100 tok/s; TTFT 4 s");
}

TEST(SpeedMeter, LeavesOutWhatThereWasNoneOf) {
  SpeedMeter meter;
  add(meter, {.num_prompt_tokens = 1000}, Seconds(2));
  EXPECT_EQ(meter.summary(), "prefill 1000 tokens, 500 tok/s");
  add(meter, {.num_prompt_tokens = 0, .num_sampled = 1}, Seconds(0));
  EXPECT_EQ(meter.summary(), "prefill 1000 tokens, 500 tok/s; decode 1 token; TTFT 2 s") << "no rate of one token";
}

TEST(SpeedMeter, SaysShortTimesInMilliseconds) {
  SpeedMeter meter;
  meter.add_step({.num_prompt_tokens = 1, .num_sampled = 1}, Clock::now() - std::chrono::microseconds(100'250));
  EXPECT_NE(meter.summary().find("TTFT 100 ms"), std::string::npos) << meter.summary();
}

TEST(RateText, HasADecimalBelowAHundred) {
  EXPECT_EQ(rate_text(8.84), "8.8 tok/s");
  EXPECT_EQ(rate_text(99.94), "99.9 tok/s");
  EXPECT_EQ(rate_text(99.96), "100 tok/s");
  EXPECT_EQ(rate_text(433.2), "433 tok/s");
}

TEST(MemoryShare, IsSaidOnlyOfAModelThatExceedsTheCaches) {
  SpeedMeter meter;
  add(meter, {.num_decoded = 1, .num_sampled = 1, .bytes_read = 1'000'000'000'000}, Seconds(1));
  EXPECT_EQ(memory_share(meter, {.weight_bytes_per_step = 1}, {}, 1), "");
  const std::string share = memory_share(meter, {.weight_bytes_per_step = std::size_t{1} << 40}, {}, 1);
  EXPECT_NE(share.find(" % of the memory bandwidth ("), std::string::npos) << share;
}

TEST(MemoryShare, IsLeftOutWhereItIsSmall) {
  SpeedMeter meter;
  add(meter, {.num_decoded = 1, .num_sampled = 1, .bytes_read = 1'000'000}, Seconds(1));
  EXPECT_EQ(memory_share(meter, {.weight_bytes_per_step = std::size_t{1} << 40}, {}, 1), "");
}

}  // namespace
}  // namespace heddle
