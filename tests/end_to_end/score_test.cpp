#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Score : public testing::Test {
 protected:
  static ProgramResult score(std::vector<std::string> more, const std::string& model = demo_model().string()) {
    std::vector<std::string> arguments{"score", "--model", model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_heddle(arguments);
  }

  static std::vector<json> json_lines(const ProgramResult& result) {
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<json> lines;
    std::istringstream stream(result.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  }

  // An answer without what says where its text stands.
  static json content(json answer) {
    answer.erase("line");
    answer.erase("id");
    return answer;
  }

  ProgramResult score_file(const std::string& lines, std::vector<std::string> more = {"--json"},
                           const std::string& model = demo_model().string()) {
    write_file(file(), lines);
    more.insert(more.begin(), {"--file", file().string()});
    return score(more, model);
  }

  std::filesystem::path file() const { return folder_.path() / "texts.jsonl"; }

  TemporaryFolder folder_;
};

TEST_F(Score, JsonHasATokensLogprobEachAndThePerplexity) {
  const json result = json_lines(score({"--text", "137 + 254 = 391", "--json"})).at(0);
  EXPECT_THAT(result["tokens"], ElementsAre(0, 22, 24, 28, 274, 226, 23, 26, 25, 264, 226, 24, 30, 22));
  const json& logprobs = result["logprobs"];
  ASSERT_EQ(logprobs.size(), 14u);
  EXPECT_TRUE(logprobs[0].is_null());
  double sum = 0;
  for (std::size_t i = 1; i < logprobs.size(); ++i) sum += logprobs[i].get<double>();
  EXPECT_NEAR(result["perplexity"].get<double>(), std::exp(-sum / 13), 1e-9);
  EXPECT_GT(logprobs[12].get<double>(), std::log(0.99)) << "the model adds well";
  const json wrong = json_lines(score({"--text", "137 + 254 = 381", "--json"})).at(0);
  EXPECT_LT(wrong["logprobs"][12].get<double>(), std::log(0.01));
}

TEST_F(Score, AgreesWithGeneratesLogprobs) {
  const json generated = json::parse(run_heddle({"generate", "--model", demo_model().string(), "--prompt",
                                                 "137 + 254 =", "--max-tokens", "4", "--json", "--logprobs", "0"})
                                         .out);
  const json scored = json_lines(score({"--text", "137 + 254 = 391", "--json"})).at(0);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(scored["tokens"][10 + i], generated["tokens"][i]);
    EXPECT_EQ(scored["logprobs"][10 + i], generated["logprobs"][i]["logprob"]);
  }
}

TEST_F(Score, TheLikeliestTokensStandBesideEach) {
  const std::vector<std::string> text = {"--text", "137 + 254 = 391"};
  const json result = json_lines(score({text[0], text[1], "--json", "--top", "2"})).at(0);
  ASSERT_EQ(result["top"].size(), 14u);
  EXPECT_TRUE(result["top"][0].is_null());
  for (std::size_t i = 1; i < 14; ++i) {
    const json& top = result["top"][i];
    ASSERT_EQ(top.size(), 2u);
    EXPECT_GE(top[0]["logprob"].get<double>(), top[1]["logprob"].get<double>());
    EXPECT_EQ(top[0]["id"] == result["tokens"][i], top[0]["logprob"] == result["logprobs"][i]);
  }
  EXPECT_EQ(result["top"][12][0]["token"], "9");
  EXPECT_THAT(score({text[0], text[1], "--top", "1"}).out, HasSubstr("    9\n"));
  EXPECT_EQ(score({text[0], text[1], "--top", "0"}).status, 2);
  EXPECT_EQ(score_file("{\"text\": \"a b\"}\n", {"--top", "1"}).status, 2) << "a line a text has no place for them";
}

TEST_F(Score, ReadsStandardInput) {
  const std::vector<std::string> arguments{"score", "--model", demo_model().string(), "--json", "--file", "-"};
  const ProgramResult result = run_heddle(arguments, {.stdin_text = "{\"text\": \"137 + 254 = 391\"}\n"});
  EXPECT_EQ(content(json_lines(result).at(0)), json_lines(score({"--text", "137 + 254 = 391", "--json"})).at(0));
  const ProgramResult bad = run_heddle(arguments, {.stdin_text = "{}\n"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("standard input:1: has neither"));
}

TEST_F(Score, TokensNeedNoTokenizer) {
  const std::filesystem::path model = folder_.path() / "model";
  std::filesystem::copy(demo_model(), model);
  std::filesystem::remove(model / "tokenizer.json");
  std::filesystem::remove(model / "tokenizer_config.json");
  const std::string tokens = "{\"tokens\": [0, 22, 24, 28, 274, 226, 23, 26, 25, 264, 226, 24, 30, 22]}\n";
  const json without = json_lines(score_file(tokens, {"--json"}, model.string())).at(0);
  EXPECT_EQ(content(without), json_lines(score({"--text", "137 + 254 = 391", "--json"})).at(0));
  EXPECT_EQ(score_file("{\"text\": \"a b\"}\n", {"--json"}, model.string()).status, 2);
  const json top = json_lines(score_file(tokens, {"--json", "--top", "1"}, model.string())).at(0)["top"][12][0];
  EXPECT_EQ(top["id"], 30);
  EXPECT_FALSE(top.contains("token"));
}

TEST_F(Score, AFileIsAnsweredInOrderWhateverTheBatch) {
  std::string lines;
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back(fmt::format("{} + {} = {}{}", i, i, 2 * i, std::string(i % 7, '.')));
  for (const std::string& text : texts) lines += json{{"text", text}}.dump() + "\n";
  const std::vector<json> results = json_lines(score_file(lines));
  ASSERT_EQ(results.size(), texts.size());
  for (const std::size_t i : {0u, 13u, 39u})
    EXPECT_EQ(content(results[i]), json_lines(score({"--text", texts[i], "--json"})).at(0));
}

TEST_F(Score, ALongTextIsScoredInWindowsThatOverlap) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += "Once upon a time there was a cat. ";
  const json whole = json_lines(score({"--text", text, "--json"})).at(0);
  const auto num_tokens = whole["tokens"].size();
  ASSERT_GT(num_tokens, 70u);

  const json windows = json_lines(score({"--text", text, "--json", "--window", "32", "--stride", "8"})).at(0);
  ASSERT_EQ(windows["logprobs"].size(), num_tokens);
  for (std::size_t i = 1; i < num_tokens; ++i) {
    ASSERT_TRUE(windows["logprobs"][i].is_number()) << i;
    if (i < 32) {
      EXPECT_EQ(windows["logprobs"][i], whole["logprobs"][i]) << "the first window knows as much";
    }
  }
  // Token 32 is scored by the window that begins at 8: as the last of a text of those tokens.
  std::vector<int> tokens = whole["tokens"];
  const std::vector<int> second(tokens.begin() + 8, tokens.begin() + 40);
  const json alone = json_lines(score_file(json{{"tokens", second}}.dump() + "\n")).at(0);
  EXPECT_EQ(windows["logprobs"][32], alone["logprobs"][24]);
  EXPECT_EQ(windows["logprobs"][39], alone["logprobs"][31]);

  const json apart = json_lines(score({"--text", text, "--json", "--window", "32", "--stride", "32"})).at(0);
  for (std::size_t i = 0; i < num_tokens; ++i) EXPECT_EQ(apart["logprobs"][i].is_null(), i % 32 == 0) << i;

  std::string long_text;
  for (int i = 0; i < 10; ++i) long_text += text;
  const json by_default = json_lines(score({"--text", long_text, "--json"})).at(0);
  EXPECT_GT(by_default["tokens"].size(), 512u) << "longer than the context, and in windows without being asked";
  EXPECT_EQ(by_default, json_lines(score({"--text", long_text, "--json", "--window", "512", "--stride", "256"})).at(0));
}

TEST_F(Score, WithoutJsonPeopleCanReadIt) {
  const ProgramResult table = score({"--text", "137 + 254 = 391"});
  EXPECT_THAT(table.out, HasSubstr("  logprob  token\n"));
  EXPECT_THAT(table.out, HasSubstr("perplexity 3.4"));
  const ProgramResult summary = score_file("{\"text\": \"137 + 254 = 391\"}\n\n{\"tokens\": [0, 22, 24]}\n", {});
  EXPECT_THAT(summary.out, HasSubstr("texts.jsonl:1: 14 tokens, perplexity 3.4"));
  EXPECT_THAT(summary.out, HasSubstr("texts.jsonl:3: 3 tokens, perplexity "));
}

TEST_F(Score, WhatCannotBeScoredIsRefusedWithItsLine) {
  const struct {
    const char* lines;
    const char* error;
  } cases[] = {
      {"{\"text\": \"a\", \"tokens\": [1]}\n", ":1: has both"},
      {"{\"text\": \"a\"}\n{\"id\": 1}\n", ":2: has neither"},
      {"{\"text\": \"a\"}\n{\"prompt\": \"a\"}\n", ":2: unknown field \\\"prompt\\\": use \\\"text\\\""},
      {"{\"txt\": \"a\"}\n", ":1: unknown field \\\"txt\\\": did you mean \\\"text\\\"?"},
      {"{\"text\": \"a b\", \"weight\": 2}\n", "the fields of a text are text, tokens, id"},
      {"{\"text\": \"a b\", \"id\": [1]}\n", ":1: id: expected a string or a whole number"},
      {"{\"text\": 5}\n", ":1: text"},
      {"{\"tokens\": \"a\"}\n", ":1: tokens"},
      {"{\"tokens\": [1, -1]}\n", ":1: tokens[1]"},
      {"{\"tokens\": [1, 1.5]}\n", ":1: tokens[1]"},
      {"\n{\"tokens\": [1, 1280]}\n", ":2: token 1280, the model knows 0 to 1279"},
      {"{\"tokens\": []}\n", ":1: the text has no tokens"},
      {"{\"tokens\": [7]}\n", ":1: the text has one token"},
      {"{\"text\": \"\"}\n", ":1: the text has one token"},  // the begin token
      {"[1]\n", ":1"},
      {"", "holds no texts"},
  };
  for (const auto& each : cases) {
    const ProgramResult result = score_file(each.lines);
    EXPECT_EQ(result.status, 2) << each.lines;
    EXPECT_THAT(result.out + result.err, HasSubstr(each.error)) << each.lines;
  }
}

TEST_F(Score, ABadLineFailsAlone) {
  const std::string lines =
      "{\"text\": \"137 + 254 = 391\", \"id\": \"a\"}\n{\"text\": 5, \"id\": 7}\n\n{\"tokens\": [0, 22, 24]}\n"
      "{\"tokens\": [1, 1280]}\n";
  const ProgramResult result = score_file(lines);
  EXPECT_EQ(result.status, 2);
  const std::vector<json> answers = json_lines({.out = result.out});
  ASSERT_EQ(answers.size(), 4u) << result.out;
  EXPECT_EQ(answers[0]["tokens"].size(), 14u);
  EXPECT_EQ(answers[0]["line"], 1);
  EXPECT_EQ(answers[0]["id"], "a");
  EXPECT_EQ(answers[0]["status"], "ok");
  EXPECT_EQ(answers[1]["line"], 2);
  EXPECT_EQ(answers[1]["id"], 7);
  EXPECT_EQ(answers[2]["line"], 4);
  EXPECT_FALSE(answers[2].contains("id"));
  EXPECT_EQ(answers[1]["status"], "error");
  EXPECT_THAT(answers[1]["error"].get<std::string>(), HasSubstr("texts.jsonl:2: text"));
  EXPECT_EQ(answers[2]["tokens"].size(), 3u);
  EXPECT_THAT(answers[3]["error"].get<std::string>(), HasSubstr("texts.jsonl:5: token 1280"));
  EXPECT_THAT(result.err, HasSubstr("2 of 4 texts failed; the first: "));

  const ProgramResult read = score_file(lines, {});
  EXPECT_EQ(read.status, 2);
  EXPECT_THAT(read.out, AllOf(HasSubstr(":1: 14 tokens, perplexity 3.4"), HasSubstr(":4: 3 tokens, perplexity ")));
  EXPECT_THAT(read.err, AllOf(HasSubstr("texts.jsonl:2: text"), HasSubstr("texts.jsonl:5: token 1280"),
                              HasSubstr("2 of 4 texts failed\n")));
}

TEST_F(Score, BadOptionsAreRefusedByName) {
  EXPECT_THAT(score({"--text", "a b", "--window", "513"}).err, HasSubstr("--window is 513, the context is 512"));
  EXPECT_THAT(score({"--text", "a b", "--window", "8", "--stride", "9"}).err, HasSubstr("--stride is 9, more than"));
  EXPECT_EQ(score({"--text", "a b", "--window", "1"}).status, 2);
  EXPECT_EQ(score({"--text", "a b", "--stride", "0"}).status, 2);
  EXPECT_EQ(score({}).status, 2);
  EXPECT_EQ(score({"--text", "a b", "--file", "x"}).status, 2);
}

}  // namespace
}  // namespace heddle
