#include "text/grammar/token_masks.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "matches.h"

namespace heddle::grammar {
namespace {

bool has(const TokenMask& mask, std::int32_t id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64) & 1) != 0;
}

// All bytes, and texts of several, some of them twice.
std::vector<std::string> tokens() {
  std::vector<std::string> all{""};  // no text
  for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"{\"",  "\":",    "\": ", "\",",      "\", \"", "}",      "true", "tr",  "ue", "null", "nu", "12",   "345",
        "\n  ", "\u00e9", "\xc3", "\xe2\x82", "abc",    "abcdef", "ab",   "\"}", "12", "]]",   "[[", "\\\"", "\\"})
    all.emplace_back(text);
  return all;
}

void check_against_the_matcher(const GrammarSource& source, unsigned seed) {
  const auto automaton = compile_grammar(source, "test");
  const auto tree = std::make_shared<const TokenTree>(tokens());
  TokenMasks masks(tree, automaton);
  std::mt19937 random(seed);
  for (int answer = 0; answer < 5; ++answer) {
    TokenMasks::Place place = masks.start();
    Matcher matcher(automaton);
    for (int step = 0; step < 60; ++step) {
      const auto mask = masks.mask(place);
      std::vector<std::int32_t> allowed;
      for (std::int32_t id = 0; id < tree->vocab_size(); ++id) {
        Matcher ahead = matcher;
        const bool may = !tree->bytes(id).empty() && ahead.accept(tree->bytes(id));
        ASSERT_EQ(has(*mask, id), may) << "token " << tree->bytes(id) << " at step " << step;
        if (may) allowed.push_back(id);
      }
      ASSERT_EQ(place.continues, !allowed.empty());
      ASSERT_EQ(place.accepting, matcher.accepting());
      if (allowed.empty()) break;
      const std::int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(masks.accept(place, token));
      ASSERT_TRUE(matcher.accept(tree->bytes(token)));
    }
  }
}

TEST(TokenMasks, SayWhatTheMatcherSays) {
  using Kind = GrammarSource::Kind;
  const GrammarSource sources[] = {
      {},
      {.kind = Kind::json_schema,
       .text = R"({"type": "object", "properties": {"abc": {"type": "string", "maxLength": 20},
         "ab": {"type": "array", "items": {"type": ["integer", "boolean"]}, "minItems": 30}}, "required": ["abc", "ab"]})"},
      {.kind = Kind::regex, .text = "(abc|[0-9]{5,40})+"},
      {.kind = Kind::choice, .choices = {"abcdef", "abc", "12345", "\u00e9"}},
  };
  for (unsigned i = 0; const GrammarSource& source : sources) check_against_the_matcher(source, ++i);
}

TEST(TokenMasks, AreFewForALongString) {
  const auto tree = std::make_shared<const TokenTree>(tokens());
  TokenMasks masks(tree, compile_grammar({.kind = GrammarSource::Kind::json_schema,
                                          .text = R"({"type": "string", "minLength": 500, "maxLength": 1000})"},
                                         "test"));
  TokenMasks::Place place = masks.start();
  const auto token = static_cast<std::int32_t>('x') + 1;
  ASSERT_TRUE(masks.accept(place, static_cast<std::int32_t>('"') + 1));
  std::set<const TokenMask*> distinct;
  std::vector<std::shared_ptr<const TokenMask>> kept;
  for (int i = 0; i < 1000; ++i) {
    kept.push_back(masks.mask(place));
    distinct.insert(kept.back().get());
    ASSERT_TRUE(masks.accept(place, token));
  }
  EXPECT_LE(distinct.size(), 40U);
  EXPECT_FALSE(masks.accept(place, token));
}

// A table that is full is left for a new one, and answers go on in it.
TEST(TokenMasks, OutliveAFullTable) {
  const auto tree = std::make_shared<const TokenTree>(tokens());
  TokenMasks masks(tree, compile_grammar({.kind = GrammarSource::Kind::json_schema,
                                          .text = R"({"type": "string", "minLength": 60000})"},
                                         "test"));
  TokenMasks::Place place = masks.start();
  const auto first = place.table;
  ASSERT_TRUE(masks.accept(place, static_cast<std::int32_t>('"') + 1));
  for (int i = 0; i < 60'000; ++i) ASSERT_TRUE(masks.accept(place, static_cast<std::int32_t>('y') + 1));
  EXPECT_NE(place.table, first);
  ASSERT_TRUE(masks.accept(place, static_cast<std::int32_t>('"') + 1));
  EXPECT_TRUE(place.accepting);
  EXPECT_FALSE(place.continues);
}

TEST(TokenMasks, RejectATokenThatIsNoText) {
  const auto tree = std::make_shared<const TokenTree>(tokens());
  TokenMasks masks(tree, compile_grammar({}, "test"));
  TokenMasks::Place place = masks.start();
  for (const std::int32_t id : {-1, 0, tree->vocab_size()}) EXPECT_FALSE(masks.accept(place, id)) << id;
  EXPECT_FALSE(masks.accept(place, static_cast<std::int32_t>('[') + 1));
  EXPECT_TRUE(masks.accept(place, static_cast<std::int32_t>('{') + 1));
}

}  // namespace
}  // namespace heddle::grammar
