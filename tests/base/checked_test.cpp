#include "base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace heddle {
namespace {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

TEST(Checked, GivesResultsThatFit) {
  EXPECT_EQ(checked_mul<std::int64_t>(1 << 20, 1 << 20, "size"), std::int64_t{1} << 40);
  EXPECT_EQ(checked_add<std::int64_t>(kMost - 1, 1, "size"), kMost);
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{-5}, "size"), -5);
}

TEST(Checked, RefusesWhatDoesNotFit) {
  EXPECT_THROW(checked_mul<std::int64_t>(kMost / 2 + 1, 2, "size"), InputError);
  EXPECT_THROW(checked_add<std::int64_t>(kMost, 1, "size"), InputError);
  EXPECT_THROW(narrow<std::int32_t>(std::int64_t{1} << 31, "size"), InputError);
  EXPECT_THROW(narrow<std::uint32_t>(-1, "size"), InputError);
}

TEST(Checked, NamesWhatWasComputed) {
  try {
    checked_mul<std::uint64_t>(std::uint64_t{1} << 32, std::uint64_t{1} << 32, "shape of tensor x");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "shape of tensor x: 4294967296 x 4294967296 overflows");
  }
}

}  // namespace
}  // namespace heddle
