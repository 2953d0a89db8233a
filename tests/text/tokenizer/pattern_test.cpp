#include "text/tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/tokenizer/regex_syntax.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> matches(const nlohmann::json& description, const std::string& text) {
  const Pattern pattern = Pattern::from_json(JsonField(description, "pattern"));
  PatternScan scan(pattern, text);
  std::vector<Span> spans;
  scan.find({0, static_cast<std::uint32_t>(text.size())}, spans);
  std::vector<std::string> result;
  for (const Span span : spans) result.push_back(text.substr(span.begin, span.end - span.begin));
  return result;
}

std::vector<std::string> matches(const char* regex, const std::string& text) {
  return matches(nlohmann::json{{"Regex", regex}}, text);
}

// Expected values are Oniguruma's; tools/goldens/make_tokenizer.py compares many more texts.
TEST(Pattern, ReadsRubysSyntax) {
  EXPECT_THAT(matches("a{1,2}+", "aaaaa"), ElementsAre("aaaaa"));  // repeated, not possessive
  EXPECT_THAT(matches("(?:ab){2}+c", "ababababc"), ElementsAre("ababababc"));
  EXPECT_THAT(matches("xa{2}?", "xaaxa"), ElementsAre("xaa", "x"));  // an optional pair, not a lazy one
  EXPECT_THAT(matches("a{1,2}?", "aa"), ElementsAre("a", "a"));      // lazy in both
  EXPECT_THAT(matches("ba{,2}", "baaab"), ElementsAre("baa", "b"));
  EXPECT_THAT(matches("{x}", "{x}"), ElementsAre("{x}"));
  EXPECT_THAT(matches("\\h+", "xyzBeef0"), ElementsAre("Beef0"));
  EXPECT_THAT(matches("[\\h-]+", "x-a"), ElementsAre("-a"));
  EXPECT_THAT(matches("\\w+", "a\u200Db \u00B2"), ElementsAre("a", "b", "\u00B2"));
  EXPECT_THAT(matches("[\\w]+", "a\u00B2"), ElementsAre("a"));
  EXPECT_THAT(matches("\\b.", "a\u0301 b"), ElementsAre("a", " ", "b"));
  EXPECT_THAT(matches("\\B.", "\u00B2a !!"), ElementsAre("a", "!", "!"));
  EXPECT_THAT(matches("\\u0061{2}+|\\x62{2}+", "aaabbb"), ElementsAre("aa", "bb"));
  EXPECT_THAT(matches("[[:punct:]]+", "a+$!b"), ElementsAre("+$!"));
  EXPECT_THAT(matches("\\p{^L}+", "a12b"), ElementsAre("12"));
  EXPECT_THAT(matches("^.$", "a\nb\nc"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(matches("a.", "a\na\ra\u2028"), ElementsAre("a\r", "a\u2028"));  // only \n ends a line
  EXPECT_THAT(matches("(?m:a.)", "a\r\n"), ElementsAre("a\r"));                // ICU's own dot would take both
  EXPECT_THAT(matches("(?m)a.|b(?-m).", "a\nb\nbx"), ElementsAre("a\n", "bx"));
  EXPECT_THAT(matches("(?i:'s|'ll)", "'S'\u017F'Ll"), ElementsAre("'S", "'\u017F", "'Ll"));
  EXPECT_THAT(matches("[]a]+", "x]a"), ElementsAre("]a"));
  EXPECT_THAT(matches("[a-z&&[^b-d]]+", "abcde"), ElementsAre("a", "e"));
  EXPECT_THAT(matches("(?<x>a)|(?#a ( comment)b", "ab"), ElementsAre("a", "b"));
  EXPECT_THAT(matches("\\v|[\\v]b",
                      "a\x0B\n\x0B"
                      "b"),
              ElementsAre("\x0B", "\x0B"));
  EXPECT_THAT(matches("a\\Z", "a\n"), ElementsAre("a"));
  EXPECT_THAT(matches("a\\Z", "a\x0B"), IsEmpty());
  EXPECT_THAT(matches("a\\Z", "a\n\n"), IsEmpty());
  EXPECT_THAT(matches("\\Qa.\\E|[\\R\\K\\Z]", "QaxE.RKZ"), ElementsAre("QaxE", "R", "K", "Z"));
  EXPECT_THAT(matches("[\\b]", "a\bb"), ElementsAre("\b"));
}

TEST(Pattern, NamesWhatOnlyRubyHas) {
  for (const char* regex : {"a\\Kb", "(?<x>a\\g<x>?)", "\\O", "\\y", "\\Y", "\\o{101}", "\\C-a", "\\M-a"}) {
    const std::string letter(std::string_view(regex).substr(std::string_view(regex).find('\\'), 2));
    try {
      matches(regex, "a");
      ADD_FAILURE() << regex;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(letter + ", which is not supported")) << regex;
    }
  }
}

TEST(Pattern, EmptyMatchesDoNotFollowAMatch) {
  EXPECT_THAT(matches("x*", "axxb"), ElementsAre("", "xx", ""));
  EXPECT_THAT(matches("(?=b)", "abb"), ElementsAre("", ""));
}

TEST(Pattern, StringsAreLookedForAsTheyAre) {
  EXPECT_THAT(matches({{"String", "a.b"}}, "a.baxba.b"), ElementsAre("a.b", "a.b"));
  EXPECT_THAT(matches({{"String", ""}}, "\u00E9b"), ElementsAre("", "", ""));
}

TEST(PatternScan, SeesOnlyItsRegion) {
  const std::string text = "\u00E9a\U0001F600ab";  // bytes: 2, 1, 4, 1, 1
  const Pattern pattern = Pattern::regex("^a|(?<=a)b|a$", "test");
  PatternScan scan(pattern, text);
  std::vector<Span> spans;
  scan.find({2, 3}, spans);  // "a"
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].begin, 2u);
  EXPECT_EQ(spans[0].end, 3u);
  scan.find({8, 9}, spans);  // "b": the "a" before is out of sight
  EXPECT_THAT(spans, IsEmpty());
}

TEST(PatternScan, GivesBytesBehindCharactersOfAnyLength) {
  const std::string text = "\u00E9 \u65E5 \U0001F600 x";
  PatternScan scan(Pattern::regex("\\S", "test"), text);
  std::vector<Span> spans;
  scan.find({0, static_cast<std::uint32_t>(text.size())}, spans);
  std::vector<std::string> found;
  for (const Span span : spans) found.push_back(text.substr(span.begin, span.end - span.begin));
  EXPECT_THAT(found, ElementsAre("\u00E9", "\u65E5", "\U0001F600", "x"));
}

// An error after some seconds, not a hang.
TEST(PatternScan, AHostilePatternIsAnError) {
  const std::pair<const char*, std::string> cases[] = {
      {"(?:a|a)*b", std::string(100, 'a')},   // 2^100 ways to fail
      {"\\s*+x", std::string(100'000, ' ')},  // fails after all that is left, at each place
  };
  for (const auto& [regex, text] : cases) {
    try {
      matches(regex, text);
      ADD_FAILURE() << regex;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("pattern: Regex: the regular expression fails on this text of"));
    }
  }
}

TEST(Pattern, RefusesWhatIcuRefuses) {
  std::string deep(30'000, '(');
  const std::pair<std::string, const char*> cases[] = {
      {"(a", "U_REGEX_MISMATCHED_PAREN"},
      {"[a", "U_REGEX_"},
      {"*", "U_REGEX_RULE_SYNTAX"},
      {"\\p{Nope}", "U_"},
      {"(?<=a+)b", "LOOK_BEHIND"},
      {"a{99999999999}", "U_REGEX_"},
      {deep, "U_REGEX_"},
      {"\\", "U_REGEX_"},
      {"(?", "U_REGEX_"},
      {"[[:", "U_"},
      {std::string(70'000, 'a'), "longer than"},
  };
  for (const auto& [regex, message] : cases) {
    try {
      Pattern::regex(regex, "tokenizer.json: Regex");
      ADD_FAILURE() << regex.substr(0, 50);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("tokenizer.json: Regex: "));
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_LT(std::string(error.what()).size(), 300u);
    }
  }
  EXPECT_THROW(Pattern::from_json(JsonField({{"String", std::string(5000, 'a')}}, "p")), InputError);
}

}  // namespace
}  // namespace heddle
