// A malformed or unsupported tokenizer.json gives one clear error that names file and field; never a crash or a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "golden.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

void expect_error(const std::string& tokenizer_json, const std::string& message) {
  SCOPED_TRACE(tokenizer_json.substr(0, 200));
  try {
    load_text(tokenizer_json);
    ADD_FAILURE() << "no error; expected " << message;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.json: "));
    EXPECT_THAT(error.what(), HasSubstr(message));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_LT(std::string(error.what()).size(), 500u);
  }
}

TEST(BadTokenizer, Json) {
  expect_error("", "is not valid JSON");
  expect_error("{", "is not valid JSON");
  expect_error(std::string(100'000, '['), "nested deeper");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"model\":";
  expect_error(deep, "nested deeper");
  expect_error("[]", "expected an object");
  expect_error("\xFF", "is not valid JSON");
  expect_error(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})", "stands twice");
}

TEST(BadTokenizer, Model) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "\"model\" is missing"},
      {R"({"model": null})", "model: expected an object, found null"},
      {R"({"model": 7})", "model: expected an object"},
      {R"({"model": {"type": "Unigram", "vocab": []}})", "model: type: the model \"Unigram\" is not supported"},
      {R"({"model": {"type": 3}})", "model: type: expected a string"},
      {R"({"model": {"merges": []}})", "model: the field \"vocab\" is missing"},
      {R"({"model": {"vocab": {"a": 0}}})", "model: the field \"merges\" is missing"},
      {R"({"model": {"vocab": ["a"], "merges": []}})", "model: vocab: expected an object"},
      {R"({"model": {"vocab": {}, "merges": []}})", "vocab: the vocabulary is empty"},
      {R"({"model": {"vocab": {"a": -1}, "merges": []}})", "vocab: a: expected a whole number from 0"},
      {R"({"model": {"vocab": {"a": 0.5}, "merges": []}})", "vocab: a: expected a whole number"},
      {R"({"model": {"vocab": {"a": "0"}, "merges": []}})", "vocab: a: expected a whole number"},
      {R"({"model": {"vocab": {"a": 16777216}, "merges": []}})",
       "vocab: a: expected a whole number from 0 to 16777215"},
      {R"({"model": {"vocab": {"a": 0, "b": 65540}, "merges": []}})",
       "vocab: b: the id 65540 is far above the number of tokens, 2: ids must be at most 65539"},
      {R"({"model": {"vocab": {"a": 16777215}, "merges": []}})", "ids must be at most 65537"},
      {R"({"model": {"vocab": {"a": 99999999999999999999}, "merges": []}})", "vocab: a: expected a whole number"},
      {R"({"model": {"vocab": {"a": 0, "b": 0}, "merges": []}})", "vocab: b: another token has the id 0 as well"},
      {R"({"model": {"vocab": {"a": 0}, "merges": {}}})", "merges: expected an array"},
      {R"({"model": {"vocab": {"a": 0}, "merges": ["a"]}})", "merges[0]: expected"},
      {R"({"model": {"vocab": {"a": 0}, "merges": ["a a a"]}})", "merges[0]: expected"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [["a", "a", "a"]]}})", "merges[0]: expected"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [["a", 1]]}})", "merges[0]: expected"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [null]}})", "merges[0]: expected"},
      {R"({"model": {"vocab": {"a": 0}, "merges": ["a b"]}})", "merges[0]: the token \"b\" is not in the vocabulary"},
      {R"({"model": {"vocab": {"a": 0, "b": 1}, "merges": ["a b"]}})", "merges[0]: the token \"ab\" is not in"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [], "dropout": 0.1}})", "model: dropout: expected null"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}})",
       "end_of_word_suffix: expected null"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [], "ignore_merges": 1}})", "ignore_merges: expected true or false"},
      {R"({"model": {"vocab": {"a": 0}, "merges": [], "unk_token": 1}})", "unk_token: expected a string"},
  };
  for (const auto& [text, message] : cases) expect_error(text, message);
}

TEST(BadTokenizer, OtherStages) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"normalizer": {"type": "Nmt"}})", "normalizer: type: the normalizer \"Nmt\" is not supported"},
      {R"({"normalizer": {}})", "normalizer: the field \"type\" is missing"},
      {R"({"normalizer": []})", "normalizer: expected an object"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "X"}]}})",
       "normalizers[1]: type"},
      {R"({"normalizer": {"type": "Replace", "pattern": "a", "content": ""}})", "pattern: expected an object"},
      {R"({"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}})", "Regex: ICU rejects"},
      {R"({"pre_tokenizer": {"type": "UnicodeScripts"}})",
       "pre_tokenizer: type: the pre-tokenizer \"UnicodeScripts\" is not supported"},
      {R"({"pre_tokenizer": {"type": "Metaspace"}})", "pre_tokenizer: the field \"replacement\" is missing"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}})",
       "replacement: expected exactly one character"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}})",
       "prepend_scheme: expected always, first or never"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "add_prefix_space": false}})",
       "add_prefix_space: expected true, as prepend_scheme is not"},
      {R"({"pre_tokenizer": {"type": "Punctuation", "behavior": "isolated"}})", "behavior: expected Removed"},
      {R"({"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ""}})", "delimiter: expected exactly one"},
      {R"({"normalizer": {"type": "Strip", "strip_left": true}})", "the field \"strip_right\" is missing"},
      {R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}})",
       "the normalizer \"Precompiled\" is not supported"},
      {R"({"pre_tokenizer": {"type": "ByteLevel"}})", "\"add_prefix_space\" is missing"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed"}})",
       "\"invert\" is missing"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "removed", "invert": false}})",
       "behavior: expected Removed"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a"}, "behavior": "Removed", "invert": false}})",
       "pattern: Regex: ICU rejects the regular expression: U_"},
      {R"({"post_processor": {"type": "PairTemplate"}})", "post-processor \"PairTemplate\" is not supported"},
      {R"({"post_processor": {"type": "BertProcessing", "sep": ["x", 77777], "cls": ["y", 0]}})",
       "sep[1]: expected the id of a token"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": "$A", "special_tokens": {}}})",
       "single: expected an array"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}],
          "special_tokens": {}}})",
       "special_tokens: the field \"<s>\" is missing"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}],
          "special_tokens": {"<s>": {"ids": [77777]}}}})",
       "ids[0]: expected the id of a token"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}], "special_tokens": {}}})",
       "id: expected \"A\""},
      {R"({"decoder": {"type": "WordPiece"}})", "decoder: type: the decoder \"WordPiece\" is not supported"},
      {R"({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "CTC"}]}})",
       "decoders[1]: type: the decoder \"CTC\" is not supported"},
      {R"({"decoder": {"type": "Strip", "content": "", "start": 0, "stop": 0}})", "content: expected exactly one"},
      {R"({"decoder": {"type": "Strip", "content": " ", "start": -1, "stop": 0}})", "start: expected a whole number"},
      {R"({"decoder": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}})", "Regex: ICU rejects"},
  };
  json root = read_golden("gpt2/tokenizer.json");
  for (const auto& [patch, message] : cases) {
    json changed = root;
    changed.update(json::parse(patch));  // replaces whole elements
    expect_error(changed.dump(), message);
  }
}

TEST(BadTokenizer, AddedTokens) {
  const auto with = [](const json& token) {
    json whole = {{"id", 3},         {"content", "<x>"},    {"single_word", false}, {"lstrip", false},
                  {"rstrip", false}, {"normalized", false}, {"special", true}};
    whole.update(token);
    return whole;
  };
  const std::pair<json, const char*> cases[] = {
      {json::array({with({{"id", 4}})}),
       "added_tokens[0]: id: the token \"<x>\" has the id 3 by the vocabulary, not 4"},
      {json::array({with({{"id", -1}})}), "added_tokens[0]: id: expected a whole number from 0"},
      {json::array({with({{"id", 1LL << 40}})}), "added_tokens[0]: id: expected a whole number from 0"},
      {json::array({with(json::object()), with({{"id", 4}})}),
       "added_tokens[1]: content: an added token stands here twice"},
      {json::array({with({{"content", 5}})}), "added_tokens[0]: content: expected a string"},
      {json::array({with({{"lstrip", nullptr}})}), "added_tokens[0]: lstrip: expected true or false"},
      {json::array({with({{"content", std::string(2000, 'x')}})}), "added_tokens[0]: content: longer than 1024 bytes"},
      {json::array({with({{"content", "zz"}, {"normalized", true}})}), "the token \"zz\" has 0 bytes when normalized"},
      {json::array({json::object()}), "added_tokens[0]: the field \"id\" is missing"},
      {"none", "added_tokens: expected an array"},
  };
  json root = tiny_tokenizer("abc");
  root["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "z"}}}, {"content", ""}};
  for (const auto& [tokens, message] : cases) {
    root["added_tokens"] = tokens;
    expect_error(root.dump(), message);
  }
}

TEST(BadTokenizer, Folders) {
  EXPECT_THROW(Tokenizer::load("/nonexistent"), InputError);
  const TemporaryFolder folder;
  EXPECT_THROW(Tokenizer::load(folder.path()), InputError);
}

TEST(BadTokenizer, ConfigBesideIt) {
  const TemporaryFolder folder;
  write_file(folder.path() / "tokenizer.json", tiny_tokenizer("abc").dump());
  const std::pair<const char*, const char*> cases[] = {
      {"[", "tokenizer_config.json: is not valid JSON"},
      {"[]", "tokenizer_config.json: expected an object"},
      {R"({"eos_token": "</s>"})", "eos_token: \"</s>\" is not a token of tokenizer.json"},
      {R"({"bos_token": {"text": "a"}})", "bos_token: the field \"content\" is missing"},
      {R"({"bos_token": 3})", "bos_token: expected a string"},
  };
  for (const auto& [config, message] : cases) {
    write_file(folder.path() / "tokenizer_config.json", config);
    try {
      Tokenizer::load(folder.path());
      ADD_FAILURE() << config;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
}

}  // namespace
}  // namespace heddle
