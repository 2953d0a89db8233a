// What `heddle tune decode` leaves out.
#include "cli/bench/decode_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace heddle {
namespace {

using testing::HasSubstr;

// The largest decides, as of an arena.
const auto gib_of_largest = [](const std::vector<DecodeSample>& samples) {
  std::size_t most = 0;
  for (const DecodeSample& one : samples)
    most = std::max(most, static_cast<std::size_t>(one.tokens) * static_cast<std::size_t>(one.context));
  return most << 30;
};

TEST(DecodeCases, AreEveryPair) {
  const std::vector<DecodeSample> cases = decode_cases({1, 16}, {8, 9});
  ASSERT_EQ(cases.size(), 4u);
  EXPECT_EQ(cases[1].context, 9);
  EXPECT_EQ(cases[2].tokens, 16);
  for (const DecodeSample& one : cases) EXPECT_TRUE(one.left_out.empty());
}

TEST(DecodeCases, WhatDoesNotFitIsLeftOutAndTheRestIsKept) {
  std::vector<DecodeSample> cases = decode_cases({1, 4}, {8, 40});
  leave_out_too_large(cases, std::size_t{40} << 30, gib_of_largest);
  EXPECT_TRUE(cases[0].left_out.empty());
  EXPECT_TRUE(cases[1].left_out.empty()) << "it fits exactly";
  EXPECT_TRUE(cases[2].left_out.empty());
  EXPECT_EQ(cases[3].left_out, "cache and step take 160.0 GiB, and 40.0 GiB are free");
  std::vector<DecodeSample> none = decode_cases({1}, {8});
  leave_out_too_large(none, 1, gib_of_largest);
  EXPECT_FALSE(none[0].left_out.empty());
}

TEST(DecodeCases, WhatTakesLongerThanIsLeftIsLeftOut) {
  EXPECT_EQ(why_too_long(3, 3), "");
  EXPECT_EQ(why_too_long(90, 12.4), "takes about 90 s, and 12 s are left (--seconds)");
  EXPECT_THAT(why_too_long(1, -5), HasSubstr("no time is left"));
}

}  // namespace
}  // namespace heddle
