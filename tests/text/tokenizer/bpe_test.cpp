#include "text/tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "golden.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<std::string>;

// The definition, literally: merge the pair with the lowest rank, the leftmost of them, until there is none.
Tokens merge_naively(const std::string& word, const std::map<std::pair<std::string, std::string>, int>& ranks) {
  Tokens tokens;
  for (const char c : word) tokens.push_back(std::string(1, c));
  for (;;) {
    std::size_t best = tokens.size();
    int best_rank = 0;
    for (std::size_t at = 0; at + 1 < tokens.size(); ++at) {
      const auto rank = ranks.find({tokens[at], tokens[at + 1]});
      if (rank == ranks.end() || (best != tokens.size() && rank->second >= best_rank)) continue;
      best = at;
      best_rank = rank->second;
    }
    if (best == tokens.size()) return tokens;
    tokens[best] += tokens[best + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, MergesAsTheDefinitionSays) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    // Random merges of existing tokens, including several ways to one token and duplicate pairs.
    Tokens known = {"a", "b", "c"};
    Merges merges;
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (int rank = 0; rank < 40; ++rank) {
      const std::string left = known[random() % known.size()];
      const std::string right = known[random() % known.size()];
      if (left.size() + right.size() > 8) continue;
      merges.emplace_back(left, right);
      ranks[{left, right}] = static_cast<int>(merges.size());  // of two equal ones the later wins
      known.push_back(left + right);
    }
    const Tokenizer tokenizer = load_text(tiny_tokenizer("abc", merges).dump());
    for (int word_index = 0; word_index < 40; ++word_index) {
      std::string word(random() % 30, ' ');
      for (char& c : word) c = "abc"[random() % 3];
      Tokens found;
      for (const std::int32_t id : tokenizer.encode(word)) found.push_back(tokenizer.token_text(id));
      ASSERT_EQ(found, merge_naively(word, ranks)) << word << " " << json(merges);
    }
  }
}

TEST(Bpe, ReadsBothFormsOfMerges) {
  json root = tiny_tokenizer("abc", {{"a", "b"}, {"ab", "c"}});
  const Tokenizer pairs = load_text(root.dump());
  root["model"]["merges"] = {"#version: 0.2", "a b", "ab c"};
  const Tokenizer strings = load_text(root.dump());
  EXPECT_EQ(pairs.encode("abcab"), strings.encode("abcab"));
  EXPECT_THAT(strings.encode("abcab"), ElementsAre(strings.id_of("abc"), strings.id_of("ab")));
}

TEST(Bpe, TakesAWholePieceFromTheVocabularyWhereMergesAreIgnored) {
  json root = tiny_tokenizer("abc", {{"b", "c"}});
  root["model"]["vocab"]["abc"] = 9;
  EXPECT_EQ(load_text(root.dump()).encode("abc").size(), 2u);
  root["model"]["ignore_merges"] = true;
  EXPECT_THAT(load_text(root.dump()).encode("abc"), ElementsAre(9));
  EXPECT_EQ(load_text(root.dump()).encode("abca").size(), 3u);
}

TEST(Bpe, AnUnknownCharacterWithoutUnknownTokenVanishes) {
  EXPECT_THAT(load_text(tiny_tokenizer("ab", {{"a", "b"}}).dump()).encode("a\u00E9b"), ElementsAre(2));
}

TEST(Bpe, AnUnknownTokenThatDoesNotExistIsAnErrorWhenItIsNeeded) {
  json root = tiny_tokenizer("ab");
  root["model"]["unk_token"] = "<unk>";
  const Tokenizer tokenizer = load_text(root.dump());
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(0, 1));
  try {
    tokenizer.encode("axb");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("<unk>"));
  }
}

TEST(MergeTable, FindsWhatWasSet) {
  MergeTable table(1000);
  for (std::int32_t i = 0; i < 1000; ++i) table.set(i % 31, i, {static_cast<std::uint32_t>(i), i + 1});
  table.set(0, 0, {5, 6});
  ASSERT_NE(table.find(0, 0), nullptr);
  EXPECT_EQ(table.find(0, 0)->rank, 5u);
  for (std::int32_t i = 1; i < 1000; ++i) {
    ASSERT_NE(table.find(i % 31, i), nullptr);
    EXPECT_EQ(table.find(i % 31, i)->token, i + 1);
    EXPECT_EQ(table.find(i, i % 31) != nullptr, i < 31);
  }
}

}  // namespace
}  // namespace heddle
