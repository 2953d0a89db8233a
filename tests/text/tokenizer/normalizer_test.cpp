#include "text/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace heddle {
namespace {

std::string normalize(const nlohmann::json& description, std::string_view text) {
  return Normalizer(JsonField(description, "normalizer")).apply(text);
}

std::string repeat(std::string_view unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

TEST(Normalizer, ComposesAndDecomposes) {
  const std::string text = "A\u030A \uFB01 e\u0301";
  EXPECT_EQ(normalize({{"type", "NFC"}}, text), "\u00C5 \uFB01 \u00E9");
  EXPECT_EQ(normalize({{"type", "NFD"}}, "\u00C5"), "A\u030A");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, text), "\u00C5 fi \u00E9");
  EXPECT_EQ(normalize({{"type", "NFKD"}}, "\uFB01\u00E9"), "fie\u0301");
}

// The package's tables are of Unicode 9: U+1DFA (class 218, of Unicode 14) separates marks like a letter there.
TEST(Normalizer, LeavesYoungerCharactersAlone) {
  EXPECT_EQ(normalize({{"type", "NFD"}}, "a\u0301\u0316"), "a\u0316\u0301");
  EXPECT_EQ(normalize({{"type", "NFD"}}, "a\u0301\u1DFA\u0316"), "a\u0301\u1DFA\u0316");
  EXPECT_EQ(normalize({{"type", "NFKC"}}, "\U00010781"), "\U00010781");
}

// Such runs are sorted before ICU sees them: the result must be that of a short run.
TEST(Normalizer, PutsLongRunsOfMarksInOrder) {
  constexpr int kMany = 400;
  EXPECT_EQ(normalize({{"type", "NFC"}}, "xa" + repeat("\u0301\u0316", kMany) + "y\u0301\u0316"),
            "x\u00E1" + repeat("\u0316", kMany) + repeat("\u0301", kMany - 1) + "\u00FD\u0316");
  EXPECT_EQ(normalize({{"type", "NFD"}}, repeat("\u0F73\u0300", kMany)),  // U+0F73 decomposes into two classes
            repeat("\u0F71", kMany) + repeat("\u0F72", kMany) + repeat("\u0300", kMany));
  EXPECT_EQ(normalize({{"type", "NFKD"}}, "\u304B" + repeat("\u0300\uFF9E", kMany)),  // no mark before NFKD
            "\u304B" + repeat("\u3099", kMany) + repeat("\u0300", kMany));
  EXPECT_EQ(normalize({{"type", "NFD"}}, repeat("\u0301\u1DFA\u0316", kMany)), repeat("\u0301\u1DFA\u0316", kMany));
}

TEST(Normalizer, LowersEveryCharacterByItself) {
  EXPECT_EQ(normalize({{"type", "Lowercase"}}, "ABC \u03A3\u0391\u03A3 \u0130 \u1E9E"),
            "abc \u03C3\u03B1\u03C3 i\u0307 \u00DF");
}

TEST(Normalizer, ReplacesAndPrepends) {
  EXPECT_EQ(normalize({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}, " a  b"),
            "\u2581a\u2581\u2581b");
  EXPECT_EQ(normalize({{"type", "Replace"}, {"pattern", {{"Regex", "x+"}}}, {"content", "\\0"}}, "\u00E9xxa"),
            "\u00E9\\0a");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normalize({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(normalize({{"type", "Sequence"},
                       {"normalizers", {{{"type", "Lowercase"}}, {{"type", "Prepend"}, {"prepend", "A"}}}}},
                      "B"),
            "Ab");
}

TEST(Normalizer, RefusesATextThatGrowsWithoutBound) {
  nlohmann::json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'a')}};
  EXPECT_THROW(normalize({{"type", "Sequence"}, {"normalizers", {grow, grow}}}, "a"), InputError);
}

}  // namespace
}  // namespace heddle
