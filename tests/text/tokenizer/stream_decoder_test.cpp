#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "golden.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kSpecial = 256;

// The id of a byte is the byte; 256 is a special token; `more` follow.
Tokenizer byte_tokenizer(const std::vector<std::string>& more = {}) {
  json root = json::parse(R"({"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {}, "merges": []}})");
  json& vocab = root["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) vocab[std::string(byte_level_char(static_cast<unsigned char>(byte)))] = byte;
  vocab["<s>"] = kSpecial;
  for (const std::string& token : more) vocab.emplace(to_byte_level(token), vocab.size());
  root["added_tokens"] = {{{"id", kSpecial},
                           {"content", "<s>"},
                           {"single_word", false},
                           {"lstrip", false},
                           {"rstrip", false},
                           {"normalized", false},
                           {"special", true}}};
  return load_text(root.dump());
}

// The result of each push, and of finish at the end.
std::vector<std::string> stream(const Tokenizer& tokenizer, const Ids& ids, Specials specials = Specials::keep) {
  StreamDecoder decoder(tokenizer, specials);
  std::vector<std::string> parts;
  for (const std::int32_t id : ids) parts.push_back(decoder.push(id));
  parts.push_back(decoder.finish());
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

TEST(StreamDecoder, GivesACharacterWithItsLastByte) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_THAT(stream(tokenizer, {'a', 0xC3, 0xA9, 'b'}), ElementsAre("a", "", "\u00E9", "b", ""));
  EXPECT_THAT(stream(tokenizer, {0xE6, 0x97, 0xA5}), ElementsAre("", "", "\u65E5", ""));
  EXPECT_THAT(stream(tokenizer, {0xF0, 0x9F, 0x98, 0x80}), ElementsAre("", "", "", "\U0001F600", ""));
}

TEST(StreamDecoder, ReplacesBytesAsSoonAsNothingCanCompleteThem) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_THAT(stream(tokenizer, {0xFF}), ElementsAre("\uFFFD", ""));                      // begins nothing
  EXPECT_THAT(stream(tokenizer, {0x80}), ElementsAre("\uFFFD", ""));                      // continues nothing
  EXPECT_THAT(stream(tokenizer, {0xC3, 'a'}), ElementsAre("", "\uFFFDa", ""));            // broken off
  EXPECT_THAT(stream(tokenizer, {0xE6, 0x97, 'a'}), ElementsAre("", "", "\uFFFDa", ""));  // one for both bytes
  EXPECT_THAT(stream(tokenizer, {0xED, 0xA0, 0x80}), ElementsAre("", "\uFFFD\uFFFD", "\uFFFD", ""));  // a surrogate
  EXPECT_THAT(stream(tokenizer, {0xF0, 0x9F, 0x98}), ElementsAre("", "", "", "\uFFFD"));              // left for finish
  EXPECT_THAT(stream(tokenizer, {0xC3, 0xC3, 0xA9}), ElementsAre("", "\uFFFD", "\u00E9", ""));
}

TEST(StreamDecoder, JoinsBytesAcrossASkippedToken) {
  const Tokenizer tokenizer = byte_tokenizer();
  const Ids ids = {0xC3, kSpecial, 0xA9};
  EXPECT_THAT(stream(tokenizer, ids, Specials::skip), ElementsAre("", "", "\u00E9", ""));
  EXPECT_THAT(stream(tokenizer, ids, Specials::keep), ElementsAre("", "\uFFFD<s>", "\uFFFD", ""));
  EXPECT_EQ(tokenizer.decode(ids, Specials::skip), "\u00E9");
}

TEST(StreamDecoder, IsNewAfterFinish) {
  StreamDecoder decoder(load_text(tiny_tokenizer("ab").dump()), Specials::keep);  // no decoder: spaces between
  EXPECT_EQ(decoder.push(0), "a");
  EXPECT_EQ(decoder.push(1), " b");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push(0), "a");
}

TEST(StreamDecoder, EverySplitOfATextIntoTokensGivesTheText) {
  const std::string text = "a\u00E9\u65E5\U0001F600";  // characters of 1 to 4 bytes
  std::vector<std::string> tokens;
  for (std::size_t begin = 0; begin < text.size(); ++begin)
    for (std::size_t end = begin + 2; end <= text.size(); ++end) tokens.push_back(text.substr(begin, end - begin));
  const Tokenizer tokenizer = byte_tokenizer(tokens);
  const auto id_of = [&](const std::string& bytes) { return tokenizer.id_of(to_byte_level(bytes)).value(); };

  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {  // bit i: a cut after byte i
    Ids ids;
    std::string token;
    for (std::size_t at = 0; at < text.size(); ++at) {
      token += text[at];
      if (at + 1 == text.size() || (cuts >> at & 1) != 0) ids.push_back(id_of(std::exchange(token, {})));
    }
    const auto parts = stream(tokenizer, ids);
    EXPECT_EQ(joined(parts), text) << cuts;
    for (const std::string& part : parts) EXPECT_EQ(part.find("\uFFFD"), std::string::npos) << cuts;
  }
}

TEST(StreamDecoder, IsDecodeForRandomBytes) {
  const Tokenizer tokenizer = byte_tokenizer();
  std::mt19937 random(1);
  // Bytes at the limits of what may follow, including the special token.
  const Ids edges = {'a',  0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,    0xE0,
                     0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF, kSpecial};
  for (int round = 0; round < 20'000; ++round) {
    Ids ids(1 + random() % 12);
    for (std::int32_t& id : ids) id = edges[random() % edges.size()];
    for (const Specials specials : {Specials::keep, Specials::skip}) {
      const auto parts = stream(tokenizer, ids, specials);
      ASSERT_EQ(joined(parts), tokenizer.decode(ids, specials)) << json(ids);
      for (const std::string& part : parts) ASSERT_EQ(find_invalid_utf8(part), std::nullopt) << json(ids);
    }
  }
}

TEST(StreamDecoder, IsDecodeForTheGoldensIds) {
  for (const json& golden : read_golden("goldens.json")) {
    const Tokenizer tokenizer = load_patched(golden["tokenizer"], golden["patch"]);
    for (const char* kind : {"encode", "decode"})
      for (const json& expected : golden[kind])
        for (const Specials specials : {Specials::keep, Specials::skip}) {
          const Ids ids = expected["ids"];
          ASSERT_EQ(joined(stream(tokenizer, ids, specials)), tokenizer.decode(ids, specials)) << golden["name"];
        }
  }
}

}  // namespace
}  // namespace heddle
