#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

std::vector<std::string> generate(std::vector<std::string> more) {
  std::vector<std::string> arguments{"generate", "--model", demo_model().string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(Generate, PrintsTheTextAndOnlyThat) {
  const ProgramResult result = run_heddle(generate({"--prompt", "137 + 254 ="}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, " 391\n\n");  // the model's own newline, and the end of the output
}

TEST(Generate, ClosesWithTheSpeedOnStandardError) {
  const ProgramResult result = run_heddle(generate({"--prompt", "Once upon a time", "--max-tokens", "20"}));
  EXPECT_THAT(
      result.err,
      ContainsRegex("20 generated in [0-9.]+ s; [0-9.]+ tokens/s, [0-9.]+ GB/s, [0-9]+ % of the memory bandwidth"));
}

TEST(Generate, JsonHasTheAgreedFields) {
  const ProgramResult result =
      run_heddle(generate({"--prompt", "137 + 254 =", "--json", "--logprobs", "2", "--max-tokens", "3"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::vector<json> lines = json_lines(result.out);
  ASSERT_EQ(lines.size(), 1u);
  const json& answer = lines[0];
  EXPECT_EQ(answer["prompt"], "137 + 254 =");
  EXPECT_EQ(answer["prompt_tokens"], 10);
  EXPECT_EQ(answer["text"], " 39");
  EXPECT_EQ(answer["tokens"].size(), 3u);
  EXPECT_EQ(answer["finish_reason"], "length");
  ASSERT_EQ(answer["logprobs"].size(), 3u);
  const json& first = answer["logprobs"][0];
  EXPECT_EQ(first["id"], answer["tokens"][0]);
  EXPECT_EQ(first["token"], " ");
  EXPECT_EQ(first["top"].size(), 2u);
  EXPECT_EQ(first["top"][0]["id"], first["id"]);
  EXPECT_EQ(first["top"][0]["logprob"], first["logprob"]);
  EXPECT_LE(first["logprob"], 0);
}

TEST(Generate, TextLeavesOutSpecialTokensAndTheStopString) {
  const json whole = json_lines(run_heddle(generate({"--prompt", "137 + 254 =", "--json"})).out).at(0);
  EXPECT_EQ(whole["text"], " 391\n");
  EXPECT_EQ(whole["finish_reason"], "stop");
  EXPECT_EQ(whole["tokens"].back(), 1) << "the end token";
  const json stopped =
      json_lines(run_heddle(generate({"--prompt", "137 + 254 =", "--json", "--stop", "91", "xyz"})).out).at(0);
  EXPECT_EQ(stopped["text"], " 3");
  EXPECT_EQ(stopped["finish_reason"], "stop");
}

TEST(Generate, ParsesSpecialTokensInAPrompt) {
  const json answer =
      json_lines(
          run_heddle(generate({"--prompt", "<|user|>\nWhat is 137 plus 254?<|end|>\n<|assistant|>\n", "--json"})).out)
          .at(0);
  EXPECT_THAT(answer["text"].get<std::string>(), HasSubstr("391"));
}

TEST(Generate, AnswersAPromptsFileInOrderWhateverTheBatch) {
  const TemporaryFolder folder;
  const std::vector<std::string> prompts{"1 + 1 =", "Once upon a time", "sort: 9 3 7 1 ->", "the opposite of hot is",
                                         "2 + 2 =", "One day"};
  std::string lines;
  for (const std::string& prompt : prompts) lines += json{{"prompt", prompt}}.dump() + "\n";
  write_file(folder.path() / "prompts.jsonl", lines);
  const std::vector<std::string> sampling{"--json", "--temperature", "0.8", "--seed", "5", "--max-tokens", "30"};
  std::vector<std::string> arguments{"--prompts-file", (folder.path() / "prompts.jsonl").string()};
  arguments.insert(arguments.end(), sampling.begin(), sampling.end());
  const ProgramResult batch = run_heddle(generate(arguments));
  ASSERT_EQ(batch.status, 0) << batch.err;
  const std::vector<json> answers = json_lines(batch.out);
  ASSERT_EQ(answers.size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(answers[i]["prompt"], prompts[i]);
    std::vector<std::string> alone{"--prompt", prompts[i], "--threads", "1"};
    alone.insert(alone.end(), sampling.begin(), sampling.end());
    EXPECT_EQ(json_lines(run_heddle(generate(alone)).out).at(0), answers[i]) << "alone or in company";
  }
}

TEST(Generate, AnotherSeedGivesAnotherStory) {
  const auto story = [](const std::string& seed) {
    return run_heddle(generate({"--prompt", "Once upon a time", "--temperature", "1", "--seed", seed})).out;
  };
  EXPECT_EQ(story("1"), story("1"));
  EXPECT_NE(story("1"), story("2"));
}

TEST(Generate, FollowsAGenerationConfigThatSamplesUnlessToldOtherwise) {
  const TemporaryFolder folder;
  std::filesystem::copy(demo_model(), folder.path(), std::filesystem::copy_options::recursive);
  write_file(folder.path() / "generation_config.json",
             R"({"do_sample": true, "temperature": 1.5, "top_k": 50, "eos_token_id": 1})");
  const auto text = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"generate", "--model", folder.path().string(), "--prompt", "Once upon a time"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_heddle(arguments).out;
  };
  EXPECT_NE(text({"--seed", "1"}), text({"--seed", "2"}));
  EXPECT_EQ(text({"--temperature", "0"}), run_heddle(generate({"--prompt", "Once upon a time"})).out);
}

TEST(Generate, EveryDtypeAnswersRight) {
  for (const char* dtype : {"auto", "float32", "bfloat16", "float16"})
    EXPECT_EQ(run_heddle(generate({"--prompt", "137 + 254 =", "--dtype", dtype})).out, " 391\n\n") << dtype;
}

TEST(Generate, EchoShowsThePromptFirst) {
  EXPECT_EQ(run_heddle(generate({"--prompt", "137 + 254 =", "--echo"})).out, "137 + 254 = 391\n\n");
}

// Thousands of stories at high temperature, which take minutes: a signal after the first output always interrupts them.
class InterruptedGenerate : public testing::Test {
 protected:
  static constexpr std::size_t kPrompts = 5000;

  ProgramResult run(int signal, std::vector<std::string> more) {
    std::string lines;
    for (std::size_t i = 0; i < kPrompts; ++i) lines += "{\"prompt\": \"Once upon a time\"}\n";
    write_file(folder_.path() / "prompts.jsonl", lines);
    bool sent = false;
    const ProgramOptions options{.on_output = [&](int pid, const std::string&) {
      if (!std::exchange(sent, true)) ::kill(pid, signal);
    }};
    std::vector<std::string> arguments{"--prompts-file", (folder_.path() / "prompts.jsonl").string(),
                                       "--temperature",  "3",
                                       "--seed",         "1",
                                       "--max-tokens",   "100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_heddle(generate(arguments), options);
  }

  TemporaryFolder folder_;
};

TEST_F(InterruptedGenerate, EndsCleanly) {
  const ProgramResult result = run(SIGINT, {});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("interrupted; [0-9]+ of 5000 prompts were not finished"));
  EXPECT_TRUE(result.out.ends_with('\n'));
}

TEST_F(InterruptedGenerate, WritesWhatWasFinished) {
  const ProgramResult result = run(SIGTERM, {"--json"});
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  const std::size_t finished = json_lines(result.out).size();
  EXPECT_THAT(result.err, HasSubstr(fmt::format("{} of 5000 prompts were not finished", kPrompts - finished)));
}

}  // namespace
}  // namespace heddle
