// Compares with the package `tokenizers`; tools/goldens/make_tokenizer.py recorded its results.
#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "golden.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

const json& goldens() {
  static const json all = read_golden("goldens.json");
  return all;
}

// One test for all, since reading the goldens takes longer than most of them.
TEST(Tokenizer, DoesWhatThePackageDoesInEveryGolden) {
  for (const json& golden : goldens()) {
    SCOPED_TRACE(golden["name"]);
    const Tokenizer tokenizer = load_patched(golden["tokenizer"], golden["patch"]);
    EXPECT_EQ(tokenizer.vocab_size(), golden["vocab_size"]);
    for (const json& expected : golden["encode"]) {
      const std::string text = expected["text"];
      const Ids ids = expected["ids"];
      SCOPED_TRACE(expected["text"].dump().substr(0, 200));
      EXPECT_EQ(tokenizer.encode(text), ids);
      EXPECT_EQ(tokenizer.encode(text, SpecialTokens::omit), expected.value("plain_ids", ids));
      const std::string decoded = expected.value("decoded", text);
      EXPECT_EQ(tokenizer.decode(ids), decoded);
      EXPECT_EQ(tokenizer.decode(ids, Specials::skip), expected.value("skipped", decoded));
    }
    for (const json& expected : golden["decode"]) {
      const Ids ids = expected["ids"];
      SCOPED_TRACE(expected["ids"].dump());
      const std::string decoded = expected["decoded"];
      EXPECT_EQ(tokenizer.decode(ids), decoded);
      EXPECT_EQ(tokenizer.decode(ids, Specials::skip), expected.value("skipped", decoded));
    }
  }
}

TEST(Tokenizer, ReadsTheConfigBesideIt) {
  const Tokenizer llama = Tokenizer::load(golden_folder() / "llama3");
  EXPECT_EQ(llama.bos_id(), llama.id_of("<|begin_of_text|>"));  // an object with "content"
  EXPECT_EQ(llama.eos_id(), llama.id_of("<|eot_id|>"));         // a string

  const Tokenizer qwen = Tokenizer::load(golden_folder() / "qwen2");
  EXPECT_EQ(qwen.bos_id(), std::nullopt);
  EXPECT_TRUE(qwen.eos_id().has_value());

  const Tokenizer gpt = Tokenizer::load(golden_folder() / "gpt2");  // has none
  EXPECT_EQ(gpt.eos_id(), std::nullopt);
}

TEST(Tokenizer, NamesTheSettingsThatItDoesNotApply) {
  EXPECT_THAT(load_patched("llama3", json::object()).settings_not_applied(), testing::IsEmpty());
  EXPECT_THAT(load_patched("llama3", {{"truncation", {{"max_length", 4}}}}).settings_not_applied(),
              testing::ElementsAre("truncation"));
}

TEST(Tokenizer, NamesTheTokensThatOnlyFilesBesideItList) {
  const std::filesystem::path golden = golden_folder() / "llama3";
  const TemporaryFolder folder;
  std::filesystem::copy_file(golden / "tokenizer.json", folder.path() / "tokenizer.json");
  const Tokenizer whole = Tokenizer::load(golden);
  const std::string known = whole.token_text(whole.bos_id().value());
  const auto list = [&] {
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    const auto left_out = tokenizer.tokens_left_out();
    return std::vector<std::string>(left_out.begin(), left_out.end());
  };
  EXPECT_THAT(list(), testing::IsEmpty());
  write_file(folder.path() / "added_tokens.json", json{{"<tool>", 99999}, {known, 0}}.dump());
  EXPECT_THAT(list(), ElementsAre("<tool>"));
  write_file(folder.path() / "tokenizer_config.json",
             json{{"added_tokens_decoder", {{"0", {{"content", known}}}, {"99998", {{"content", "<call>"}}}}}}.dump());
  EXPECT_THAT(list(), ElementsAre("<call>", "<tool>"));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = Tokenizer::load(golden_folder() / "llama3");
  const std::int32_t special = tokenizer.id_of("<|eot_id|>").value();
  const std::int32_t the = tokenizer.id_of("\u0120the").value();  // " the" in GPT-2's alphabet
  EXPECT_TRUE(tokenizer.is_special(special));
  EXPECT_FALSE(tokenizer.is_special(the));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.vocab_size()));
  EXPECT_EQ(tokenizer.token_text(special), "<|eot_id|>");
  EXPECT_EQ(tokenizer.token_text(the), " the");
  EXPECT_EQ(tokenizer.token_text(tokenizer.id_of("\u00E2").value()), "\uFFFD");  // byte 0xE2 begins a character
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = Tokenizer::load(golden_folder() / "gpt2");
  for (const std::int32_t id : {-1, tokenizer.vocab_size(), 1 << 30}) {
    EXPECT_THROW(tokenizer.decode(Ids{0, id}), InputError);
    EXPECT_THROW(tokenizer.token_text(id), InputError);
    EXPECT_THROW(StreamDecoder(tokenizer, Specials::keep).push(id), InputError);
  }
}

TEST(Tokenizer, AnUnusedIdDecodesToNothing) {
  const Tokenizer tokenizer = load_text(R"({"model": {"vocab": {"a": 0, "b": 5}, "merges": []}})");
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.decode(Ids{0, 3, 5}), "a b");
}

TEST(Tokenizer, NamesTheByteThatIsNotUtf8) {
  const Tokenizer tokenizer = Tokenizer::load(golden_folder() / "gpt2");
  const std::pair<std::string, std::size_t> cases[] = {
      {"abc\xFF", 3},
      {"\xC3", 0},                 // cut off
      {"0123456789\xC0\x80", 10},  // overlong; past the eight bytes that are looked at together
      {"\u00E9\xED\xA0\x80", 2},   // a surrogate
      {"\xF4\x90\x80\x80", 0},     // above U+10FFFF
  };
  for (const auto& [text, offset] : cases) {
    try {
      tokenizer.encode(text);
      ADD_FAILURE() << "no error for byte " << offset;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("at byte " + std::to_string(offset)));
    }
  }
}

TEST(Tokenizer, IsSharedByThreads) {
  const Tokenizer tokenizer = Tokenizer::load(golden_folder() / "qwen2");
  std::vector<std::string> texts;
  for (const json& expected : goldens()[2]["encode"]) texts.push_back(expected["text"]);
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text));
  std::vector<std::thread> threads;
  std::array<std::vector<Ids>, 4> found;
  for (auto& results : found)
    threads.emplace_back([&, copy = tokenizer] {
      for (const std::string& text : texts) results.push_back(copy.encode(text));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& results : found) EXPECT_EQ(results, expected);
}

// Each of these is one piece, or one run of something, on which a simple implementation is quadratic: it would exceed
// the test's time limit.
TEST(Tokenizer, LongRunsTakeLinearTime) {
  constexpr int kLength = 150'000;
  const auto repeat = [](const std::string& unit, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += unit;
    return text;
  };
  for (const char* name : {"gpt2", "llama3", "qwen2"}) {
    const Tokenizer tokenizer = Tokenizer::load(golden_folder() / name);
    for (const char* unit : {" ", "a", "ab", "\n", " \n", "1", "'", "<|"}) {
      const std::string text = repeat(unit, kLength);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::omit)), text) << name << " " << json(unit);
    }
  }
  // Marks that NFC has to reorder; white space that every token of a run includes.
  const Tokenizer qwen = Tokenizer::load(golden_folder() / "qwen2");
  EXPECT_FALSE(qwen.encode("a" + repeat("\u0316\u0300", kLength)).empty());
  const Tokenizer spaces = load_patched(
      "gpt2", json::parse(R"({"added_tokens": [{"id": 520, "content": "  ", "single_word": false, "lstrip": false,
                              "rstrip": true, "normalized": false, "special": false}],
                              "normalizer": {"type": "NFC"}})"));
  EXPECT_EQ(spaces.encode(repeat(" ", kLength)), Ids(kLength / 2, 520));
}

}  // namespace
}  // namespace heddle
