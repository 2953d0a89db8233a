// heddle inspect reports "unsupported" wherever generate would fail, and prints a table that no name can break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using json = nlohmann::json;

// A copy of the demo model with one field of one file changed.
class InspectCommand : public ::testing::Test {
 protected:
  InspectCommand() { std::filesystem::copy(demo_model(), folder_.path(), std::filesystem::copy_options::recursive); }

  void change(const std::string& file, const std::string& pointer, const json& value) {
    const auto path = folder_.path() / file;
    json content = json::parse(read_file(path, 64 << 20));
    content[json::json_pointer(pointer)] = value;
    write_file(path, content.dump());
  }
  json inspect() {
    const ProgramResult result = run_heddle({"inspect", folder_.path().string(), "--json"});
    const json report = json::parse(result.out);
    EXPECT_EQ(result.status, report.at("unsupported").empty() ? 0 : 2) << result.err;
    return report;
  }
  std::vector<std::string> unsupported() { return inspect().at("unsupported"); }
  std::string generate_error() {
    const ProgramResult result =
        run_heddle({"generate", "--model", folder_.path().string(), "--prompt", "x", "--max-tokens", "1"});
    EXPECT_EQ(result.status, 2);
    return result.err;
  }

  TemporaryFolder folder_;
};

TEST_F(InspectCommand, ATokenizerThatGenerateRefusesIsUnsupported) {
  change("tokenizer.json", "/normalizer", {{"type", "Nmt"}});
  const std::vector<std::string> sentences = unsupported();
  ASSERT_EQ(sentences.size(), 1u);
  EXPECT_THAT(sentences[0], HasSubstr("Nmt"));
  EXPECT_THAT(generate_error(), HasSubstr(sentences[0]));
  EXPECT_EQ(inspect().at("tokenizer").at("model"), "BPE");  // shown all the same
}

TEST_F(InspectCommand, ATokenizerThatCannotBeReadIsUnsupported) {
  write_file(folder_.path() / "tokenizer.json", "{");
  EXPECT_THAT(unsupported(), ElementsAre(HasSubstr("tokenizer.json")));
  EXPECT_TRUE(inspect().at("tokenizer").is_null());
  std::filesystem::remove(folder_.path() / "tokenizer.json");
  EXPECT_THAT(unsupported(), ElementsAre(HasSubstr("tokenizer.json is missing")));
}

TEST_F(InspectCommand, TensorsThatDoNotFitTheConfigAreUnsupported) {
  const auto layers = inspect().at("layers").get<int>();
  for (const int other : {layers - 1, layers + 1}) {  // extra and missing tensors
    change("config.json", "/num_hidden_layers", other);
    const std::vector<std::string> sentences = unsupported();
    ASSERT_EQ(sentences.size(), 1u);
    EXPECT_THAT(sentences[0], HasSubstr("model.layers."));
    EXPECT_THAT(generate_error(), HasSubstr(sentences[0]));
  }
}

TEST_F(InspectCommand, NamesTheScalingOfPositionsThatDoesNotActHere) {
  change("config.json", "/rope_scaling", nlohmann::json{{"rope_type", "dynamic"}, {"factor", 2.0}});
  EXPECT_EQ(inspect().at("rope"),
            (json{{"theta", 10000.0}, {"type", "dynamic"}, {"factor", 2.0}, {"original_context", nullptr}}));
  EXPECT_THAT(run_heddle({"inspect", folder_.path().string()}).out, HasSubstr("dynamic scaling by 2"));
}

TEST_F(InspectCommand, GivesTheScalingOfPositionsByItsParts) {
  change("config.json", "/rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 4.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 128}});
  const json rope = inspect().at("rope");
  EXPECT_EQ(rope.at("type"), "llama3");
  EXPECT_EQ(rope.at("factor"), 4.0);
  EXPECT_EQ(rope.at("original_context"), 128);
}

TEST_F(InspectCommand, WarnsOfEosIdsOutsideTheVocabulary) {
  EXPECT_TRUE(inspect().at("warnings").empty());
  change("generation_config.json", "/eos_token_id", {1, 128009});
  EXPECT_THAT(inspect().at("warnings").dump(),
              HasSubstr("EOS id 128009: the model knows 0 to 1279, so no text ends there; is generation_config.json"));
}

TEST_F(InspectCommand, ExplainsRanksByWhatItSays) {
  EXPECT_THAT(run_heddle({"inspect", "--help"}).out, AllOf(HasSubstr("--tp"), Not(HasSubstr("--device"))));
}

TEST_F(InspectCommand, AnAbsurdConfigIsUnsupported) {
  change("config.json", "/hidden_size", -1);
  EXPECT_THAT(unsupported(), ElementsAre(AllOf(HasSubstr("hidden_size"), HasSubstr("-1"))));
}

TEST_F(InspectCommand, NamesCannotBreakTheTable) {
  change("config.json", "/architectures", {"Plain"});
  const std::string before = run_heddle({"inspect", folder_.path().string()}).out;
  change("config.json", "/architectures", {"Evil\n\x1b[2J\xc2\x9b\x7f"});
  const std::string out = run_heddle({"inspect", folder_.path().string()}).out;
  EXPECT_THAT(out,
              AllOf(HasSubstr("  Evil\\n\\x1b[2J\\x9b\\x7f\n"), Not(HasSubstr("\x1b")), Not(HasSubstr("\xc2\x9b"))));
  EXPECT_EQ(std::ranges::count(out, '\n'), std::ranges::count(before, '\n'));
}

TEST(DoctorCommand, NamesTheCompiler) {
#ifdef __clang__
  constexpr const char* kCompiler = "compiled by Clang ";
#else
  constexpr const char* kCompiler = "compiled by GCC ";
#endif
  EXPECT_THAT(run_heddle({"doctor"}).out, HasSubstr(kCompiler));
}

}  // namespace
}  // namespace heddle
