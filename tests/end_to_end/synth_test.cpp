// `synth:NAME` as a model, and the folder that heddle synth writes: they give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using json = nlohmann::json;

// Greedy, since the numbers are to be compared.
std::string generated(const std::string& model) {
  const ProgramResult result = run_heddle({"generate", "--model", model, "--prompt", "The king and", "--max-tokens",
                                           "12", "--threads", "2", "--json", "--logprobs", "3"});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class SynthCommand : public ::testing::Test {
 protected:
  ProgramResult synth(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "synth");
    arguments.insert(arguments.end(), {"--out", out_.string()});
    return run_heddle(arguments);
  }

  TemporaryFolder folder_;
  std::filesystem::path out_ = folder_.path() / "model";
};

TEST_F(SynthCommand, NamesWhatThereIs) {
  EXPECT_THAT(run_heddle({"synth", "--help"}).out,
              AllOf(HasSubstr("The names are "), HasSubstr("llama-3.2-1b, "), HasSubstr("tiny"), HasSubstr("synth:")));
  EXPECT_THAT(synth({"tinny"}).err, HasSubstr("there is no synthetic model \"tinny\"; did you mean tiny? There are "));
}

TEST_F(SynthCommand, WritesAFolderThatGeneratesAsTheNameDoes) {
  const ProgramResult result = synth({"tiny", "--layers", "2", "--dtype", "float16", "--max-shard-size", "300KB"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("synth:tiny,layers=2,dtype=float16"));
  EXPECT_THAT(names_in(out_), testing::IsSupersetOf({"config.json", "generation_config.json", "tokenizer.json",
                                                     "tokenizer_config.json", "model.safetensors.index.json"}));
  const std::string answer = generated(out_.string());
  EXPECT_EQ(answer, generated("synth:tiny,layers=2,dtype=float16"));
  EXPECT_NE(answer, generated("synth:tiny,layers=1,dtype=float16"));
}

TEST_F(SynthCommand, TakesTheNameWithItsOptions) {
  EXPECT_EQ(synth({"synth:tiny,layers=1"}).status, 0);
  const json config = json::parse(read_file(out_ / "config.json", 1 << 20));
  EXPECT_EQ(config.at("num_hidden_layers"), 1);
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
  EXPECT_TRUE(std::filesystem::exists(out_ / "model.safetensors"));
}

TEST_F(SynthCommand, FillsAnEmptyFolderAndNoOther) {
  std::filesystem::create_directory(out_);
  EXPECT_EQ(synth({"tiny", "--layers", "1"}).status, 0);
  const ProgramResult again = synth({"tiny", "--layers", "2"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, AllOf(HasSubstr(out_.string()), HasSubstr("exists")));
  EXPECT_EQ(json::parse(read_file(out_ / "config.json", 1 << 20)).at("num_hidden_layers"), 1);  // as it was
  EXPECT_THAT(names_in(folder_.path()), testing::ElementsAre("model"));
}

TEST_F(SynthCommand, LeavesNothingBehindWhenItFails) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  for (const Case& c :
       {Case{{"llama-4"}, "only llama-2-7b"}, Case{{"tiny", "--layers", "5"}, "1 to 4"},
        Case{{"tiny,layers=2", "--layers", "2"}, "given twice"}, Case{{"tiny", "--dtype", "int8"}, "expected float32"},
        Case{{"tiny", "--max-shard-size", "-1"}, "max-shard-size"},
        Case{{"tiny", "--max-shard-size", "5 parsecs"}, "max-shard-size"}, Case{{}, "name"}}) {
    const ProgramResult result = synth(c.arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(names_in(folder_.path()), IsEmpty());
  }
  out_ = folder_.path() / "no" / "such" / "folder";
  EXPECT_EQ(synth({"tiny"}).status, 2);
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST_F(SynthCommand, SaysHowMuchSpaceIsMissing) {
  if (std::filesystem::space(folder_.path()).available > 282'000'000'000) GTEST_SKIP() << "there is space enough";
  const ProgramResult result = synth({"llama-3.3-70b,dtype=float32"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("262.8 GiB are needed"), HasSubstr("are missing")));
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST(SyntheticModelName, WorksInInspectAndTokenize) {
  const ProgramResult inspected = run_heddle({"inspect", "synth:llama-3.2-1b", "--json"});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  const json report = json::parse(inspected.out);
  EXPECT_EQ(report.at("parameters"), 1'235'814'400);
  EXPECT_EQ(report.at("tokenizer").at("vocab_size"), 128'256);
  EXPECT_EQ(report.at("unsupported"), json::array());
  EXPECT_EQ(run_heddle({"tokenize", "--model", "synth:tiny", "--text", " the", "--no-special"}).status, 0);
}

// The tensors' names and shapes are those that the loader expects; no weights are generated for this.
TEST(SyntheticModelName, OfEveryShapeCanBeLoaded) {
  for (const char* name :
       {"llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3.2-1b", "llama-3.3-70b", "codellama-34b", "qwen2-72b",
        "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "mistral-7b", "mixtral-8x7b", "mixtral-8x22b", "deepseek-v2-lite"}) {
    const ProgramResult result = run_heddle({"inspect", std::string("synth:") + name, "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(json::parse(result.out).at("unsupported"), json::array()) << name;
  }
}

TEST(SyntheticModelName, ThatIsUnknownIsRefusedEverywhere) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"generate", "--model", "synth:gpt-5", "--prompt", "x"},
        {"tokenize", "--model", "synth:gpt-5", "--text", "x"},
        {"inspect", "synth:gpt-5"},
        {"synth", "gpt-5", "--out", "/tmp/never-made"}}) {
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, 2) << arguments[0];
    EXPECT_THAT(result.err, AllOf(HasSubstr("\"gpt-5\""), HasSubstr("llama-3.2-1b"))) << arguments[0];
  }
}

}  // namespace
}  // namespace heddle
