#include "engine/synthetic_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "engine/model_template.h"
#include "engine/model_tokenizer.h"

namespace heddle {
namespace {

// One of each kind: bos in the middle or at the beginning, several eos, and a bos that is an eos and not added.
TEST(SyntheticTokenizer, GivesEveryIdATextOfItsOwn) {
  for (const std::string_view name : {"tiny", "llama-2-7b", "llama-3.3-70b", "qwen2.5-7b"}) {
    const KnownShape& shape = *find_known_shape(name);
    const Tokenizer tokenizer = load_model_tokenizer(fmt::format("synth:{}", name));
    ASSERT_EQ(tokenizer.vocab_size(), shape.vocab_size) << name;
    std::unordered_set<std::string> texts;
    int cut_characters = 0;  // bytes above 127, which are no text alone
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string text = tokenizer.token_text(id);
      ASSERT_FALSE(text.empty()) << name << " " << id;
      if (text == "\xef\xbf\xbd")
        ++cut_characters;
      else
        ASSERT_TRUE(texts.insert(text).second) << name << " " << id << " " << text;
    }
    EXPECT_EQ(cut_characters, 128) << name;
  }
}

TEST(SyntheticTokenizer, HasTheSpecialTokensOfTheModel) {
  for (const KnownShape& shape : kKnownShapes) {
    if (shape.vocab_size > 40'000 && shape.name != "llama-3.2-1b" && shape.name != "qwen3-8b") continue;  // as those
    const std::string model = fmt::format("synth:{},layers=1", shape.name);
    const Tokenizer tokenizer = load_model_tokenizer(model);
    EXPECT_NO_THROW(load_model_chat_template(model));
    EXPECT_EQ(tokenizer.bos_id(), shape.bos_id) << shape.name;
    EXPECT_EQ(tokenizer.eos_id(), shape.eos_ids[0]) << shape.name;
    EXPECT_TRUE(tokenizer.is_special(shape.bos_id)) << shape.name;
    const auto ids = tokenizer.encode("x");
    EXPECT_EQ(ids.front() == shape.bos_id, shape.family != Family::qwen3) << shape.name;
    EXPECT_EQ(ids.size(), shape.family == Family::qwen3 ? 1u : 2u) << shape.name;
    const auto turn = tokenizer.encode("<|im_start|>user\n<|im_end|>", SpecialTokens::omit);
    EXPECT_TRUE(tokenizer.is_special(turn.front())) << shape.name;
    EXPECT_TRUE(tokenizer.is_special(turn.back())) << shape.name;
    // What transformers gives a Qwen tokenizer, whatever its files say: NFC, and this token.
    const bool composes =
        tokenizer.encode("e\xcc\x81", SpecialTokens::omit) == tokenizer.encode("\xc3\xa9", SpecialTokens::omit);
    EXPECT_EQ(composes, shape.family == Family::qwen3) << shape.name;
    const std::vector<std::int32_t> alone{shape.bos_id};
    EXPECT_EQ(tokenizer.encode("<|endoftext|>", SpecialTokens::omit) == alone, shape.family == Family::qwen3)
        << shape.name;
  }
}

TEST(SyntheticTokenizer, EncodesWhatItDecodes) {
  const Tokenizer tokenizer = load_model_tokenizer("synth:tiny");
  std::string all_ascii;
  for (char c = 1; c < 127; ++c) all_ascii += c;
  for (const std::string& text :
       {std::string("The answer, and that of others: it was with the king."), all_ascii,
        std::string("  two  spaces\n\n\ttab"), std::string("h\xc3\xa9 \xe2\x98\x83 \xf0\x9f\x8e\x89"), std::string()})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::omit)), text);
}

TEST(SyntheticTokenizer, MergesFrequentLetters) {
  const Tokenizer tokenizer = load_model_tokenizer("synth:tiny");
  const std::string text = " and the thing that he was in";
  EXPECT_LT(tokenizer.encode(text, SpecialTokens::omit).size(), text.size() / 2);
  EXPECT_EQ(tokenizer.encode(" the", SpecialTokens::omit).size(), 1u);
}

TEST(SyntheticTokenizer, OfAnUnknownShapeIsRefused) {
  EXPECT_THROW(load_model_tokenizer("synth:tinier"), InputError);
}

}  // namespace
}  // namespace heddle
