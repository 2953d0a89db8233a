#include "base/json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(std::string_view text) {
  return error_of([&] { (void)parse_json(text, "f.json"); });
}

TEST(Json, NamesThePlaceOfASyntaxError) {
  const struct {
    const char* text;
    const char* problem;
  } cases[] = {
      {"{\"a\": 1,\n \"b\" 2}", "\"2\" is unexpected at line 2, column 6"},
      {"", "it ends too early, at line 1, column 1"},
      {"[1,\n\"ab", "it ends too early, at line 2, column 4"},
      {"{} {}", "\"{\" is unexpected at line 1, column 4"},
      {"{\"a\": NaN}", "\"N\" is unexpected at line 1, column 7"},
      {"[\"é\" \"b\"]", "\"\\\"b\\\"\" is unexpected at line 1, column 6"},
      {"\"\xff\"", "a character that is not UTF-8 in a string at line 1, column 2"},
      {"\"\xc3z\"", "a character that is not UTF-8 in a string at line 1, column 3"},
      {"[\"a\nb\"]", "a control character that is not escaped in a string at line 1, column 4"},
      {"\"a\\qb\"", "an escape that there is not in a string at line 1, column 4"},
      {"[true, 12x]", "\"x\" is unexpected at line 1, column 10"},
      {"[1] é", "\"\\u00e9\" is unexpected at line 1, column 5"},
      {"{\"a\": 1e400}", "the number 1e400 is too large"},
  };
  for (const auto& each : cases)
    EXPECT_EQ(parse_error(each.text), fmt::format("f.json: is not valid JSON: {}", each.problem));
  EXPECT_THAT(parse_error(std::string_view("{}\0 x", 5)), HasSubstr("zero byte"));
}

TEST(Json, RefusesAKeyThatStandsTwice) {
  EXPECT_THAT(parse_error(R"({"a": {"x": 1}, "b": {"x": 1}, "a": 2})"), HasSubstr("the key \"a\" stands twice"));
}

TEST(Json, RefusesDeepNesting) {
  EXPECT_THAT(parse_error(std::string(100'000, '[')), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(parse_error(std::string(64, '[') + std::string(64, ']')), "no error");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(parse_error(objects), HasSubstr("nested deeper"));
}

// With quadratic time this test would hang.
TEST(Json, ReadsAMillionMembers) {
  std::string text = "{";
  for (int i = 0; i < 1'000'000; ++i) text += "\"" + std::to_string(i) + "\":[],";
  text.back() = '}';
  EXPECT_EQ(parse_json(text, "f.json").size(), 1'000'000u);
}

TEST(Json, ShortensLongMessages) {
  EXPECT_LT(parse_error("[" + std::string(100'000, 'x')).size(), 300u);
  EXPECT_LT(parse_error("{\"" + std::string(100'000, 'x') + "\": 1, \"" + std::string(100'000, 'x') + "\": 1}").size(),
            300u);
}

TEST(JsonField, ReadsTypedValues) {
  const auto json =
      parse_json(R"({"s": "x", "i": 7, "f": 2.0, "n": 0.5, "b": true, "none": null, "o": {"k": [1, 2]}})", "f.json");
  const JsonField root(json, "f.json");
  EXPECT_EQ(root.at("s").text(), "x");
  EXPECT_EQ(root.at("i").integer(0, 10), 7);
  EXPECT_EQ(root.at("f").integer(0, 10), 2);
  EXPECT_EQ(root.at("n").number(0, 1), 0.5);
  EXPECT_TRUE(root.at("b").boolean());
  EXPECT_FALSE(root.find("none"));
  EXPECT_FALSE(root.find("missing"));
  EXPECT_EQ(root.at("o").at("k").elements()[1].integer(0, 10), 2);
  EXPECT_EQ(root.at("o").at("k").elements()[1].path(), "f.json: o: k[1]");
  EXPECT_EQ(root.at("o").members().at(0).first, "k");
}

TEST(JsonField, SaysWhatItExpectedAndFound) {
  const auto json = parse_json(
      R"({"i": 11, "h": 1099511627776, "f": 2.5, "s": "x", "big": 18446744073709551615, "o": {}})", "f.json");
  const JsonField root(json, "f.json");
  EXPECT_EQ(error_of([&] { root.at("missing"); }), "f.json: the field \"missing\" is missing");
  EXPECT_EQ(error_of([&] { (void)root.at("i").integer(0, 10); }),
            "f.json: i: expected a whole number from 0 to 10, found 11");
  EXPECT_THAT(error_of([&] { (void)root.at("h").integer(0, 1 << 24); }), HasSubstr("found 1099511627776"));
  EXPECT_THAT(error_of([&] { (void)root.at("big").integer(0, 10); }), HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(error_of([&] { (void)root.at("f").integer(0, 10); }), HasSubstr("found 2.5"));
  EXPECT_THAT(error_of([&] { (void)root.at("s").number(0, 1); }), HasSubstr("found \"x\""));
  EXPECT_THAT(error_of([&] { (void)root.at("s").boolean(); }), HasSubstr("expected true or false"));
  EXPECT_THAT(error_of([&] { (void)root.at("o").text(); }), HasSubstr("expected a string, found an object"));
  EXPECT_THAT(error_of([&] { (void)root.at("s").elements(); }), HasSubstr("expected an array"));
  EXPECT_THAT(error_of([&] { (void)root.at("s").at("x"); }), HasSubstr("expected an object"));
}

// A terminal obeys control characters; U+009B begins a control sequence, too.
TEST(JsonField, QuotesFilesPrintably) {
  const auto json = parse_json(R"({"a\u001b[2J\n\"": {"k\u009b": "\u001b[31m\u00e9\\\u007f"}})", "f.json");
  const auto [key, member] = JsonField(json, "f.json").members().at(0);
  EXPECT_EQ(member.path(), "f.json: a\\u001b[2J\\n\"");
  EXPECT_EQ(member.members().at(0).second.path(), member.path() + ": k\\u009b");
  const JsonField value = member.members().at(0).second;
  EXPECT_EQ(error_of([&] { value.fail(value.text()); }), value.path() + ": \\u001b[31m\u00e9\\\\u007f");
  EXPECT_LT(error_of([&] { value.fail(std::string(100'000, 'x')); }).size(), 1100u);
  EXPECT_THAT(parse_error("[\"\xff\xc0\"]"),
              HasSubstr("a character that is not UTF-8 in a string at line 1, column 3"));
}

}  // namespace
}  // namespace heddle
