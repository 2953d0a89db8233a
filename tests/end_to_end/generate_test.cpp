#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "end_to_end/json_lines.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;

std::vector<std::string> generate(std::vector<std::string> more) {
  std::vector<std::string> arguments{"generate", "--model", demo_model().string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Generate, PrintsTheTextAndOnlyThat) {
  const ProgramResult result = run_heddle(generate({"--prompt", "137 + 254 ="}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, " 391\n\n");  // the model's own newline, and the end of the output
}

TEST(Generate, ClosesWithTheSpeedOnStandardError) {
  const ProgramResult result = run_heddle(generate({"--prompt", "Once upon a time", "--max-tokens", "20"}));
  EXPECT_THAT(result.err, MatchesRegex("heddle: prefill 5 tokens, [0-9.]+ tok/s; decode 20 tokens, [0-9.]+ tok/s; "
                                       "TTFT [0-9.]+ m?s\n"))
      << "no share of the memory bandwidth: caches hold the model";
  EXPECT_THAT(run_heddle(generate({"--prompt", "x", "--max-tokens", "1", "--temperature", "1", "--seed", "7"})).err,
              ContainsRegex("TTFT [0-9.]+ m?s; seed 7\n"));
}

TEST(Generate, QuietLeavesStandardErrorToErrors) {
  const ProgramResult result = run_heddle(generate({"--prompt", "137 + 254 =", "--quiet"}));
  EXPECT_EQ(result.out, " 391\n\n");
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(run_heddle(generate({"--prompt", "\xff", "--quiet"})).err, HasSubstr("UTF-8"));
}

TEST(Generate, TextOnStandardInputIsThePrompt) {
  const ProgramResult expected = run_heddle(generate({"--prompt", "137 + 254 =", "--json"}));
  for (const char* text : {"137 + 254 =", "137 + 254 =\n", "137 + 254 =\r\n"}) {
    EXPECT_EQ(run_heddle(generate({"--json"}), {.stdin_text = text}).out, expected.out)
        << "the last line end is no part";
    EXPECT_EQ(run_heddle(generate({"--prompt", "-", "--json"}), {.stdin_text = text}).out, expected.out);
  }
  const ProgramResult two = run_heddle(generate({"--json"}), {.stdin_text = "a\nb\n\n"});
  EXPECT_EQ(json_lines(two.out).at(0)["prompt"], "a\nb\n");
  const ProgramResult given = run_heddle(generate({"--prompt", "137 + 254 =", "--json"}), {.stdin_text = "not this"});
  EXPECT_EQ(given.out, expected.out);
  EXPECT_THAT(run_heddle(generate({}), {.stdin_text = "\xff"}).err, HasSubstr("error: standard input: "));
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
      json_lines(run_heddle(generate({"--prompt", "137 + 254 =", "--json", "--stop", "91", "--stop", "xyz"})).out)
          .at(0);
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

}  // namespace
}  // namespace heddle
