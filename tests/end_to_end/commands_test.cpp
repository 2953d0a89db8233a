// The other commands on the demo model, and the command line itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Tokenize, ThereAndBack) {
  const auto ids =
      json::parse(run_heddle({"tokenize", "--model", demo_model().string(), "--text", "137 + 254 =", "--json"}).out);
  ASSERT_EQ(ids["ids"].size(), 10u);
  const TemporaryFolder folder;
  write_file(folder.path() / "ids.jsonl", ids.dump() + "\n\n" + ids.dump() + "\n");
  const ProgramResult back = run_heddle({"tokenize", "--model", demo_model().string(), "--decode", "--no-special",
                                         "--file", (folder.path() / "ids.jsonl").string(), "--json"});
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(back.out, "{\"text\":\"137 + 254 =\"}\n{\"text\":\"137 + 254 =\"}\n");
}

TEST(Tokenize, NeedsTheTokenizersFilesAlone) {
  const TemporaryFolder folder;
  std::filesystem::copy(demo_model() / "tokenizer.json", folder.path());
  const ProgramResult result =
      run_heddle({"tokenize", "--model", folder.path().string(), "--text", "one", "--no-special", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(json::parse(result.out)["ids"].is_array());
}

TEST(Inspect, DescribesTheDemoModel) {
  const ProgramResult result = run_heddle({"inspect", demo_model().string(), "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json description = json::parse(result.out);
  EXPECT_THAT(description.dump(), HasSubstr("LlamaForCausalLM"));
  EXPECT_TRUE(description.at("unsupported").empty());
  EXPECT_GT(description.at("parameters").get<double>(), 1e6);
  EXPECT_THAT(run_heddle({"inspect", demo_model().string()}).out, HasSubstr("LlamaForCausalLM"));
}

TEST(Inspect, ReportsWhatIsUnsupportedAndThenExitsWithTwo) {
  const TemporaryFolder folder;
  std::filesystem::copy(demo_model(), folder.path(), std::filesystem::copy_options::recursive);
  json config = json::parse(read_file(folder.path() / "config.json", 1 << 20));
  config["architectures"] = {"GPT2LMHeadModel"};
  write_file(folder.path() / "config.json", config.dump());
  const ProgramResult result = run_heddle({"inspect", folder.path().string(), "--json"});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(json::parse(result.out).at("unsupported").dump(), HasSubstr("GPT2LMHeadModel"));
}

TEST(Doctor, DescribesTheMachine) {
  const ProgramResult result = run_heddle({"doctor", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(json::parse(result.out).is_object());
  EXPECT_THAT(run_heddle({"doctor"}).out, HasSubstr("GB/s"));
}

TEST(CommandLine, HelpAndVersionAreNoErrors) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"--help"},
                                                                                         {"--version"},
                                                                                         {"generate", "--help"},
                                                                                         {"tokenize", "--help"},
                                                                                         {"inspect", "--help"},
                                                                                         {"doctor", "--help"}}) {
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_FALSE(result.out.empty());
    EXPECT_EQ(result.err, "");
  }
}

TEST(Template, AnEmptyConversationIsRefused) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "empty.json").string();
  write_file(file, "[]");
  const ProgramResult result = run_heddle({"template", "--model", demo_model().string(), "--file", file});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("empty.json: cannot apply a chat template to an empty conversation"));
}

TEST(Template, WarnsOfToolsThatTheTemplateLeavesOut) {
  const ProgramResult result = run_heddle(
      {"template", demo_model().string()},
      {.stdin_text = R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]})"});
  EXPECT_EQ(result.out, "<|begin|><|user|>\nx<|end|>\n<|assistant|>\n") << result.err;
  EXPECT_EQ(result.err, "heddle: warning: standard input: the model's chat template leaves \"tools\" out\n");
  EXPECT_THAT(run_heddle({"template", demo_model().string()}).err,
              HasSubstr("--file or a conversation on standard input is required"));
}

TEST(Template, ReadsStandardInput) {
  const ProgramResult result = run_heddle({"template", "--model", demo_model().string(), "--file", "-"},
                                          {.stdin_text = R"([{"role": "user", "content": "x"}])"});
  EXPECT_EQ(result.out, "<|begin|><|user|>\nx<|end|>\n<|assistant|>\n") << result.err;
  const ProgramResult bad =
      run_heddle({"template", "--model", demo_model().string(), "--file", "-"}, {.stdin_text = "[1,]"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("standard input: is not valid JSON: \"]\" is unexpected at line 1, column 4"));
}

TEST(Tokenize, WarnsOnceOfSettingsThatAreNotApplied) {
  const TemporaryFolder folder;
  json tokenizer = json::parse(read_file(demo_model() / "tokenizer.json", std::size_t{1} << 24));
  tokenizer["truncation"] = {{"max_length", 4}};
  write_file(folder.path() / "tokenizer.json", tokenizer.dump());
  const ProgramResult result = run_heddle({"tokenize", "--model", folder.path().string(), "--text", "one two three"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("heddle: warning: " + folder.path().string() + ": tokenizer.json asks for truncation"));
}

TEST(CommandLine, AModelTooLargeForTheMemoryIsRefusedAtOnce) {
  constexpr double kBytes = 72.7e9 * 4;  // of the weights
  if (static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)) > kBytes)
    GTEST_SKIP() << "this machine could hold it";
  for (const std::vector<std::string>& model :
       {std::vector<std::string>{"synth:qwen2-72b,dtype=float32"}, {"synth:qwen2-72b", "--dtype", "float32"}}) {
    std::vector<std::string> arguments{"generate", "--prompt", "x", "--model"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(" GiB of memory, "));
    EXPECT_THAT(result.err, HasSubstr("use fewer layers"));
  }
}

TEST(CommandLine, MoreThreadsThanCanRunAreWarnedOf) {
  const ProgramResult result =
      run_heddle({"generate", "--model", demo_model().string(), "--prompt", "x", "--max-tokens", "1", "--threads",
                  std::to_string(std::thread::hardware_concurrency() + 1)});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("heddle: warning: --threads "));
}

TEST(CommandLine, AnUnknownCommandIsNamedBesideThoseThatThereAre) {
  struct Case {
    std::vector<std::string> arguments;
    const char* error;
  };
  for (const Case& c :
       {Case{{"frobnicate"}, "heddle has no command \"frobnicate\"; there are chat, generate, "},
        Case{{"frobnicate", "--model", "x"}, "no command \"frobnicate\""},
        Case{{"bench", "xyz"}, "heddle bench has no command \"xyz\"; there are decode, "},
        Case{{"tokenize", "--model", "x", "abc"},
             "heddle tokenize takes one model, and was given \"x\" and \"abc\"; a text needs --text; see heddle "
             "tokenize --help"},
        Case{{"doctor", "abc"}, "heddle doctor takes no \"abc\" by itself; see heddle doctor --help"},
        Case{{"--colour"}, "heddle has no option --colour"}, Case{{"a\x1b[31m"}, R"(no command "a\x1b[31m")"}}) {
    const ProgramResult result = run_heddle(c.arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(c.error));
  }
}

TEST(CommandLine, UsageErrorsExitWithTwoAndSayHowToGetHelp) {
  const std::string model = demo_model().string();
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"invent"},
           {"generate"},
           {"generate", "--model", model},
           {"generate", "--model", model, "--prompt", "x", "--prompts-file", "y"},
           {"generate", "--model", model, "--prompt", "x", "--max-tokens", "many"},
           {"generate", "--model", model, "--prompt", "x", "--dtype", "int3"},
           {"generate", "--model", model, "--prompt", "x", "--threads", "0"},
           {"generate", "--model", model, "--prompt", "x", "--seed", "-1"},
           {"generate", "--model", model, "--prompt", "x", "--logprobs", "2"},
           {"generate", "--model", model, "--prompt", "x", "--colour"},
           {"generate", "--model", model, "--prompt", "x", "--seed", "18446744073709551616"},
           {"generate", "--model", model, "--prompt", "x", "--seed", ""},
           {"generate", "--model", model, "--prompt", "x", "--temperature", ""},
           {"generate", "--model", model, "--prompt", "x", "--temperature", "-1"},
           {"generate", "--model", model, "--prompt", "x", "--temperature", "nan"},
           {"generate", "--model", model, "--prompt", "x", "--max-tokens", "0"},
           {"generate", "--model", model, "--prompt", "x", "--max-tokens", "1e3"},
           {"tokenize", "--model", model},
           {"inspect"},
       }) {
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(arguments) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("heddle: error: "));
    EXPECT_THAT(result.err, HasSubstr("--help"));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace heddle
