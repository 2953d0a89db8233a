#include "engine/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"

namespace heddle {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load(std::filesystem::path(HEDDLE_SOURCE_DIR) / "assets/demo-llama");
  return loaded;
}

struct Result {
  std::string text;
  bool stopped;
  std::vector<std::string> pieces;
};

Result stream(std::string_view text, std::vector<std::string> stop) {
  TextStream text_stream(tokenizer(), std::move(stop));
  Result result{};
  for (const std::int32_t id : tokenizer().encode(text, SpecialTokens::omit)) {
    result.pieces.push_back(text_stream.push(id));
    result.text += result.pieces.back();
    if (text_stream.stopped()) break;
  }
  result.text += text_stream.finish();
  result.stopped = text_stream.stopped();
  return result;
}

TEST(TextStream, WithoutStopStringsShowsEverything) {
  const Result result = stream("one two, three\n", {});
  EXPECT_EQ(result.text, "one two, three\n");
  EXPECT_FALSE(result.stopped);
}

TEST(TextStream, EndsBeforeAStopStringThatSpansTokens) {
  const Result result = stream("alpha beta 12345 gamma", {"a 123"});
  EXPECT_EQ(result.text, "alpha bet");
  EXPECT_TRUE(result.stopped);
}

TEST(TextStream, TheEarliestOfSeveralWins) {
  EXPECT_EQ(stream("abc def ghi", {"ghi", "ef"}).text, "abc d");
  EXPECT_EQ(stream("abc def ghi", {"def", "c d"}).text, "ab");
}

TEST(TextStream, WhatOnlyBeginsAStopStringIsShownInTheEnd) {
  const Result result = stream("one two tw", {"two three", "twins"});
  EXPECT_EQ(result.text, "one two tw");
  EXPECT_FALSE(result.stopped);
}

TEST(TextStream, RepeatedBeginningsDoNotHideTheStopString) {
  EXPECT_EQ(stream("aaab", {"aab"}).text, "a");
  EXPECT_EQ(stream("1121123", {"1123"}).text, "112");
}

TEST(TextStream, NeverShowsHalfACharacter) {
  for (const std::string& piece : stream("é 漢字 🙂 ẞ", {}).pieces)
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_EQ(stream("é 漢字 🙂 ẞ", {"字"}).text, "é 漢");
}

TEST(TextStream, LeavesOutSpecialTokensAndIdsTheTokenizerDoesNotKnow) {
  TextStream text_stream(tokenizer(), {});
  const std::int32_t eos = *tokenizer().eos_id();
  EXPECT_EQ(text_stream.push(eos), "");
  EXPECT_EQ(text_stream.push(tokenizer().vocab_size() + 5), "");
}

TEST(TextStream, AnEmptyStopStringIsRefused) {
  EXPECT_THROW(TextStream(tokenizer(), {"a", ""}), InputError);
}

// Each token is searched for all of them: with 10^5, every token would be slow.
TEST(TextStream, StopStringsBeyondTheLimitsAreRefused) {
  const std::string longest(1024, 'x');
  EXPECT_NO_THROW(TextStream(tokenizer(), std::vector<std::string>(1024, longest)));
  EXPECT_THROW(TextStream(tokenizer(), std::vector<std::string>(1025, longest)), InputError);
}

// One automaton for all of them: separate searches at each token would exceed the test's time limit.
TEST(TextStream, TakesAHundredThousandStopStrings) {
  std::vector<std::string> stop;
  for (int n = 100'000; n < 200'000; ++n) stop.push_back("x" + std::to_string(n));
  std::string text;
  for (int n = 0; n < 2000; ++n) text += "x1 x12 x123 x9";
  EXPECT_EQ(stream(text + " x150000 more", stop).text, text + " ");
  stop.push_back(std::string(kMaxStopBytes, 'a'));
  EXPECT_THROW(TextStream(tokenizer(), stop), InputError);
}

// For any text and any stop strings, the stream shows the same as cutting the whole text.
TEST(TextStream, AgreesWithCuttingTheWholeText) {
  std::mt19937 random(5);
  const auto letters = [&](int most) {
    std::string text;
    for (int n = static_cast<int>(random() % static_cast<unsigned>(most)) + 1; n > 0; --n) text += "ab1 "[random() % 4];
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    const std::string text = letters(40);
    std::vector<std::string> stop;
    for (unsigned n = random() % 3; n > 0; --n) stop.push_back(letters(5));
    // Tokens come one by one, so a stop string that completes first ends the text even if a longer one began before it.
    // In the whole text, the first to complete is the one with the smallest end.
    std::size_t first_end = std::string::npos;
    std::size_t cut = std::string::npos;
    for (const std::string& s : stop) {
      const std::size_t at = text.find(s);
      if (at == std::string::npos) continue;
      if (first_end == std::string::npos || at + s.size() < first_end || (at + s.size() == first_end && at < cut)) {
        first_end = at + s.size();
        cut = at;
      }
    }
    const Result result = stream(text, stop);
    EXPECT_EQ(result.stopped, cut != std::string::npos);
    // A token may complete two at once, and then the earlier beginning wins; both are cuts of the same text.
    EXPECT_TRUE(text.starts_with(result.text)) << text;
    EXPECT_LE(result.text.size(), std::min(cut, text.size())) << text;
    for (const std::string& s : stop) EXPECT_EQ(result.text.find(s), std::string::npos) << text << " | " << s;
  }
}

}  // namespace
}  // namespace heddle
