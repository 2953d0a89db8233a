// Compares with the package `tokenizers` on 20 000 random texts over every assigned code point, by hashes of blocks of
// 100 (tools/goldens/make_random_goldens.py). Where a hash differs, tools/goldens/compare_tokenizers.py shows the
// texts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/sanitizer.h"
#include "golden.h"
#include "random_texts.h"
#include "text/tokenizer/pattern.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kBlock = 100;

// Sanitizers find other mistakes, for which a tenth of the texts is enough; all of them would take a minute.
constexpr std::size_t kBlocksApart = kSanitizer ? 10 : 1;

const std::vector<std::string>& snippets() {
  static const std::vector<std::string> all = read_golden("snippets.json");
  return all;
}

class RandomTexts : public testing::TestWithParam<std::size_t> {};

TEST_P(RandomTexts, AreWhatThePackageMakesOfThem) {
  const json kind = read_golden("random.json")[GetParam()];
  const Tokenizer tokenizer = load_patched(kind["tokenizer"], kind["patch"]);
  const std::vector<std::size_t> left_out = kind["left_out"];
  for (std::size_t block = 0; block < kind["blocks"].size(); block += kBlocksApart) {
    Fnv ids_hash;
    Fnv text_hash;
    for (std::size_t index = block * kBlock; index < (block + 1) * kBlock; ++index) {
      if (std::binary_search(left_out.begin(), left_out.end(), index)) continue;  // the package crashes on it
      const auto ids = tokenizer.encode(random_text(kSeed, index, snippets()));
      ids_hash.add_ids(ids);
      for (const auto& some : {ids, random_ids(kSeed, index, tokenizer.vocab_size())})
        for (const Specials specials : {Specials::keep, Specials::skip})
          text_hash.add_text(tokenizer.decode(some, specials));
    }
    EXPECT_EQ(fmt::format("{:016x}{:016x}", ids_hash.value(), text_hash.value()),
              kind["blocks"][block].get<std::string>())
        << kind["name"] << ", texts from " << block * kBlock << " on";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomTexts, testing::Range<std::size_t>(0, 8));

// class_pattern.h must match exactly like ICU.
TEST(ClassPattern, AgreesWithIcu) {
  const char* patterns[] = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+)",
      R"(\s?\p{L}+|\s?\p{P}+|[\x{4E00}-\x{9FA5}]+|\w+|[[:punct:]]{2,3}|\d(?=\D))",
  };
  for (const char* regex : patterns) {
    const Pattern by_hand = Pattern::regex(regex, "test");
    const Pattern by_icu = Pattern::icu_regex(regex, "test");
    for (std::size_t index = 0; index < 2000; ++index) {
      const std::string text = random_text(7, index * 10, snippets());
      const Span whole{0, static_cast<std::uint32_t>(text.size())};
      std::vector<Span> found;
      std::vector<Span> expected;
      PatternScan(by_hand, text).find(whole, found);
      PatternScan(by_icu, text).find(whole, expected);
      const auto same = [](Span a, Span b) { return a.begin == b.begin && a.end == b.end; };
      ASSERT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end(), same))
          << regex << " on " << json(text);
    }
  }
}

}  // namespace
}  // namespace heddle
