#include "base/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

TEST(OrderedJson, KeepsTheOrderOfMembers) {
  const std::string text = R"({"z":[1,-2,2.5,{"y":null,"b":true}],"a":{"c":"é","B":{}},"m":[]})";
  EXPECT_EQ(parse_ordered_json(text, "t").dump(), text);
}

TEST(OrderedJson, RefusesWhatParseJsonRefuses) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "[[[[]]]]", "1 2", "\"\xff\""})
    EXPECT_THROW(parse_ordered_json(text, "t", 3), InputError) << text;
}

TEST(OrderedJson, RefusesNumbersThatWouldBeWrittenAsOthers) {
  EXPECT_EQ(parse_ordered_json("[18446744073709551615,1e20]", "t").dump(), "[18446744073709551615,1e+20]");
  EXPECT_THROW(parse_ordered_json("[18446744073709551616]", "t"), InputError);
}

TEST(OrderedJson, ReadsAnObjectOfManyMembersInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("{}\"{}\":{}", i ? "," : "", i, i);
  EXPECT_EQ(parse_ordered_json(text + "}", "t").size(), 100'000u);
}

}  // namespace
}  // namespace heddle
