#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "matches.h"

namespace heddle::grammar {
namespace {

using testing::HasSubstr;

TEST(GuidedRegex, MatchesTheWholeText) {
  const struct {
    const char* expression;
    std::vector<std::string> matching;
    std::vector<std::string> others;
  } cases[] = {
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"a|bc|", {"a", "bc", ""}, {"abc", "b"}},
      {"(ab)*c", {"c", "abc", "ababc"}, {"ac", "abab"}},
      {"a{2,4}", {"aa", "aaa", "aaaa"}, {"a", "aaaaa"}},
      {"a{2}", {"aa"}, {"a", "aaa"}},
      {"(?:a|b){2,}", {"ab", "bba"}, {"a", ""}},
      {"a+?b*?", {"a", "aab"}, {"", "b"}},  // lazy: the same texts
      {"[a-cx]", {"a", "b", "c", "x"}, {"d", "-", ""}},
      {"[^a-c]", {"d", "\u00e9", "\n"}, {"a", "", "dd"}},
      {"[]-]", {}, {}},
      {"[\\]a-]", {"]", "a", "-"}, {"b"}},
      {"\\d\\w\\s", {"1_ ", "0z\t"}, {"aa ", "12x"}},
      {"\\D\\W\\S", {"a-b", "x\u00e9y"}, {"1-b", "aab"}},
      {".", {"a", "\u20ac", "\U0001F600"}, {"\n", "\r", "", "\xe2\x82"}},
      {"\\u00e9\\x41\\u{1F600}", {"\u00e9A\U0001F600"}, {"eA"}},
      {"\\ud83d\\ude00", {"\U0001F600"}, {"\u00e9"}},
      {"^a$", {"a"}, {"", "ab"}},
      {"(^a|b)c", {"ac", "bc"}, {"c"}},
      {"a^b", {}, {"ab", "a", "b"}},
      {"(a|b$)c*", {"a", "acc", "b"}, {"bc"}},
      {"(?<year>[0-9]{4})", {"2024"}, {"24"}},
      {"\\{\\}\\.", {"{}."}, {"{}a"}},
      {"[\\d.]+", {"3.14"}, {"3,14"}},
  };
  for (const auto& [expression, matching, others] : cases) {
    if (matching.empty() && others.empty()) continue;
    SCOPED_TRACE(expression);
    if (matching.empty()) {
      EXPECT_THROW(regex_matches(expression, ""), InputError);
      continue;
    }
    for (const std::string& text : matching) EXPECT_TRUE(regex_matches(expression, text)) << text;
    for (const std::string& text : others) EXPECT_FALSE(regex_matches(expression, text)) << text;
  }
}

TEST(GuidedRegex, NamesWhatItDoesNotSupport) {
  const struct {
    const char* expression;
    const char* message;
  } cases[] = {
      {"a(?=b)", "at byte 3 of the expression: look-ahead and look-behind"},
      {"(?<!a)b", "look-ahead"},
      {"(a)\\1", "backreferences"},
      {"\\bword", "\\b and \\B"},
      {"\\p{L}", "\\p is not supported"},
      {"(?i)a", "this kind of group"},
      {"a++", "possessive"},
      {"(a", "a \"(\" without its \")\""},
      {"a)", "a \")\" without a \"(\""},
      {"[a", "a [ without its ]"},
      {"*a", "a repetition without anything"},
      {"a{3,1}", "n is less than m"},
      {"a{", "expected a repetition"},
      {"a**", "a repetition of a repetition"},
      {"a{99999}", "more than 10000 repetitions"},
      {"[b-a]", "whose end lies before its start"},
      {"\\", "a backslash at the end"},
      {"\\q", "an unknown escape"},
      {"[[:alpha:]]", "POSIX"},
      {"\xff", "not valid UTF-8 at byte 0"},
      {"((((a{100}){100}){100}){100})", "more than 16384 states"},
  };
  for (const auto& [expression, message] : cases) {
    SCOPED_TRACE(expression);
    try {
      regex_matches(expression, "");
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_TRUE(std::string_view(error.what()).starts_with("test: ")) << error.what();
    }
  }
}

TEST(GuidedChoice, MatchesItsTextsOnly) {
  const GrammarSource source{.kind = GrammarSource::Kind::choice, .choices = {"yes", "no", "not sure", "yes"}};
  for (const char* text : {"yes", "no", "not sure"}) EXPECT_TRUE(matches(source, text)) << text;
  for (const char* text : {"", "y", "not", "yesno"}) EXPECT_FALSE(matches(source, text)) << text;
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{}, {"a", ""}, {"\xff"}})
    EXPECT_THROW(matches({.kind = GrammarSource::Kind::choice, .choices = wrong}, "a"), InputError);
}

}  // namespace
}  // namespace heddle::grammar
