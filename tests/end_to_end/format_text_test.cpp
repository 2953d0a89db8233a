#include "cli/format_text.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(FormatText, CountsHaveAPlural) {
  EXPECT_EQ(count_text(0, "core"), "0 cores");
  EXPECT_EQ(count_text(1, "core"), "1 core");
  EXPECT_EQ(count_text(2, "core"), "2 cores");
}

// At the limits of a unit, three digits would otherwise become 1e+03.
TEST(FormatText, MagnitudesHaveThreeDigitsAndNoExponent) {
  EXPECT_EQ(magnitude_text(999), "999");
  EXPECT_EQ(magnitude_text(1000), "1 thousand");
  EXPECT_EQ(magnitude_text(999'499), "999 thousand");
  EXPECT_EQ(magnitude_text(999'999), "1 million");
  EXPECT_EQ(magnitude_text(4'560'000), "4.56 million");
  EXPECT_EQ(magnitude_text(999'999'999), "1 billion");
  EXPECT_EQ(magnitude_text(70'600'000'000), "70.6 billion");
  EXPECT_EQ(magnitude_text(1'234'000'000'000), "1234 billion");
}

TEST(FormatText, SizesHaveNoExponent) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1023), "1023 bytes");
  EXPECT_EQ(size_text(48 << 10), "48 KiB");
  EXPECT_EQ(size_text(1020 << 10), "1020 KiB");
  EXPECT_EQ(size_text((9 << 20) / 2), "4.5 MiB");
  EXPECT_EQ(size_text(std::uint64_t{47} << 29), "23.5 GiB");
}

TEST(FormatText, QuantitiesHaveAnSiPrefixAndNoExponent) {
  EXPECT_EQ(si_text(0.8153, "s"), "815.3 ms");
  EXPECT_EQ(si_text(12230, "J"), "12.23 kJ");
  EXPECT_EQ(si_text(201.1e-6, "s"), "201.1 us");
  EXPECT_EQ(si_text(0, "s"), "0 s");
  EXPECT_EQ(si_text(1, "W"), "1 W");
  EXPECT_EQ(si_text(999.94, "W"), "999.9 W");
  EXPECT_EQ(si_text(999.96, "W"), "1 kW");
  EXPECT_EQ(si_text(0.99996, "s"), "1 s");
  EXPECT_EQ(si_text(-0.002, "V"), "-2 mV");
  EXPECT_EQ(si_text(3e-15, "s"), "0.003 ps");
  EXPECT_EQ(si_text(5e18, "J"), "5000 PJ");
}

TEST(FormatText, ControlCharactersAreEscapedAndNothingElseIs) {
  EXPECT_EQ(printable_text("a\n\t\r\x1b\x7f"), "a\\n\\t\\r\\x1b\\x7f");
  EXPECT_EQ(printable_text("mod\xc3\xa8le \"x\" \\ \xc2\xa0"), "mod\xc3\xa8le \"x\" \\ \xc2\xa0");
  EXPECT_EQ(printable_text("\xc2\x9b\xc2"), "\\x9b\xc2");  // C1 in UTF-8; a character cut off
  EXPECT_EQ(printable_text(std::string_view("\0", 1)), "\\x00");
}

}  // namespace
}  // namespace heddle
