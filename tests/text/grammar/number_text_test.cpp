#include "text/grammar/number_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/grammar/state_table.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

NumberRange range_of(const Json& bounds) {
  NumberRange range;
  if (bounds.contains("least")) range.least = bound_of(bounds["least"], bounds.value("above", false));
  if (bounds.contains("most")) range.most = bound_of(bounds["most"], bounds.value("below", false));
  return range;
}

bool takes(StateTable& table, std::string_view text) {
  StateTable::Id state = table.start();
  for (const char byte : text) {
    state = table.next(state, static_cast<std::uint8_t>(byte));
    if (state == StateTable::kDead) return false;
  }
  return table.accepting(state);
}

using Maker = Fragment (*)(AutomatonBuilder&, const NumberRange&);

StateTable table_of(Maker make, const Json& bounds) {
  AutomatonBuilder builder;
  const RuleId rule = builder.rule(make(builder, range_of(bounds)));
  return StateTable(std::make_shared<const Automaton>(std::move(builder).finish(rule)));
}

TEST(NumberText, IntegersOfARange) {
  // Every pair of bounds near the places where the number of digits changes.
  const std::int64_t ends[] = {-1001, -1000, -999, -101, -100, -99, -12, -10, -9,  -1,
                               0,     1,     9,    10,   11,   57,  99,  100, 999, 1000};
  for (const std::int64_t least : ends)
    for (const std::int64_t most : ends) {
      if (most < least) continue;
      StateTable table = table_of(integers, {{"least", least}, {"most", most}});
      for (std::int64_t value = -1050; value <= 1050; value += value > -1010 && value < 1010 ? 1 : 5)
        ASSERT_EQ(takes(table, std::to_string(value)), least <= value && value <= most)
            << value << " in " << least << " to " << most;
    }
}

TEST(NumberText, IntegersAreWrittenInOneWay) {
  StateTable table = table_of(integers, Json::object());
  for (const char* text : {"0", "7", "-7", "10", "123456789012345678", "-999999999999999999"})
    EXPECT_TRUE(takes(table, text)) << text;
  for (const char* text : {"", "-", "-0", "00", "01", "+1", "1.0", "1e3", "1234567890123456789"})
    EXPECT_FALSE(takes(table, text)) << text;
}

TEST(NumberText, BoundsOfIntegersMayBeFractionsAndStrict) {
  const struct {
    Json bounds;
    std::vector<int> inside;
    std::vector<int> outside;
  } cases[] = {
      {{{"least", 1.5}, {"most", 3.5}}, {2, 3}, {1, 4}},
      {{{"least", -3.5}, {"most", -1.5}}, {-3, -2}, {-4, -1}},
      {{{"least", -0.5}, {"most", 0.5}}, {0}, {-1, 1}},
      {{{"least", 0}, {"above", true}, {"most", 3}, {"below", true}}, {1, 2}, {0, 3}},
      {{{"least", -3}, {"above", true}, {"most", 0}, {"below", true}}, {-2, -1}, {-3, 0}},
      {{{"most", -0.5}}, {-1, -100}, {0, 1}},
      {{{"least", 0.5}}, {1, 100}, {0, -1}},
      {{{"least", 2.0}, {"most", 2e0}}, {2}, {1, 3}},
  };
  for (const auto& [bounds, inside, outside] : cases) {
    StateTable table = table_of(integers, bounds);
    for (const int value : inside) EXPECT_TRUE(takes(table, std::to_string(value))) << bounds << " " << value;
    for (const int value : outside) EXPECT_FALSE(takes(table, std::to_string(value))) << bounds << " " << value;
  }
}

TEST(NumberText, NumbersOfARange) {
  const Json ends[] = {-10.5, -2, -1.25, -0.5, -0.05, 0, 0.05, 0.125, 0.5, 1, 1.5, 9.99, 10, 12.75, 100};
  std::vector<std::string> texts;
  for (const char* sign : {"", "-"})
    for (const char* digits : {"0", "1", "2", "9", "10", "12", "13", "99", "100", "101"})
      for (const char* fraction : {"", ".0", ".04", ".05", ".050", ".0500001", ".12", ".125", ".126", ".25", ".4999",
                                   ".5", ".50", ".51", ".75", ".99", ".991"})
        texts.push_back(std::string(sign) + digits + fraction);
  for (const Json& least : ends)
    for (const Json& most : ends)
      for (const bool strict : {false, true}) {
        const double low = least.get<double>();
        const double high = most.get<double>();
        if (low > high || (strict && low == high)) continue;
        StateTable table = table_of(numbers, {{"least", least}, {"most", most}, {"above", strict}, {"below", strict}});
        for (const std::string& text : texts) {
          const double value = std::stod(text);
          if (value == 0 && text[0] == '-') continue;  // never written
          const bool inside = strict ? low < value && value < high : low <= value && value <= high;
          // Zeros behind a bound's own digits may be left out.
          const bool padded = text.ends_with('0') && text.find('.') != std::string::npos;
          if (inside && padded) continue;
          ASSERT_EQ(takes(table, text), inside) << text << " in " << low << " to " << high << " strict " << strict;
        }
      }
}

TEST(NumberText, FreeNumbersHaveExponents) {
  StateTable table = table_of(numbers, Json::object());
  for (const char* text : {"0", "-0", "0.5", "-12.25", "1e5", "1E+10", "6.02e23", "1e-299", "1e279"})
    EXPECT_TRUE(takes(table, text)) << text;
  for (const char* text : {"", ".5", "1.", "01", "1e", "1e400", "+1", "NaN", "1e1000"})
    EXPECT_FALSE(takes(table, text)) << text;
}

}  // namespace
}  // namespace heddle::grammar
