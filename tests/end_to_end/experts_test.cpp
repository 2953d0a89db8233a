// Commands on models with experts and latent attention, as folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "models/experts_family.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class ExpertsCommand : public testing::Test {
 protected:
  std::string model(const char* name, const ExpertsFamily::Change& change = {}) {
    const std::filesystem::path folder = folder_.path() / name;
    std::filesystem::create_directories(folder);
    family_.write(family_.find(name), folder, change);
    return folder.string();
  }

  ProgramResult score(const std::string& model, std::vector<std::string> more = {}) {
    const std::filesystem::path file = folder_.path() / "texts.jsonl";
    write_file(file, R"({"tokens": [3, 14, 15, 9, 2, 6, 5]})");
    more.insert(more.begin(), {"score", "--model", model, "--file", file.string(), "--json"});
    return run_heddle(more);
  }

  // The report of a folder without a tokenizer, which alone is wrong with it.
  static ProgramResult inspect(const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"inspect", model});
    return run_heddle(more);
  }

  const ExpertsFamily family_;
  const TemporaryFolder folder_;
};

TEST_F(ExpertsCommand, InspectSaysWhichExpertsAndLatentsThereAre) {
  const json report = json::parse(inspect(model("v3"), {"--json"}).out);
  EXPECT_EQ(report.at("experts"), json({{"count", 16},
                                        {"per_token", 4},
                                        {"shared", 1},
                                        {"intermediate", 24},
                                        {"dense_layers", 1},
                                        {"scoring", "sigmoid"},
                                        {"method", "noaux_tc"},
                                        {"groups", 4},
                                        {"groups_per_token", 2},
                                        {"normalized", true},
                                        {"scaling", 2.5}}));
  EXPECT_EQ(report.at("latent"), 40);
  EXPECT_EQ(report.at("latent_attention"), json({{"kv_lora_rank", 32},
                                                 {"q_lora_rank", 20},
                                                 {"qk_nope_head_dim", 16},
                                                 {"qk_rope_head_dim", 8},
                                                 {"v_head_dim", 16}}));
  EXPECT_THAT(
      inspect(model("v3")).out,
      AllOf(HasSubstr("experts       16 in a layer, each 24 wide, 4 for each token; 1 shared; none in the first "
                      "layer\n"),
            HasSubstr("routing       sigmoid, noaux_tc, from 2 of 4 groups; weights normalized, times 2.5\n"),
            HasSubstr("latent        kv_lora_rank 32, q_lora_rank 20; heads: keys of 16 and 8 rotated, values "
                      "of 16; 40 elements of each token and layer are cached\n")));
  EXPECT_TRUE(
      json::parse(inspect(model("v2-lite"), {"--json"}).out).at("latent_attention").at("q_lora_rank").is_null());
  EXPECT_TRUE(json::parse(inspect(model("v2-dense"), {"--json"}).out).at("experts").is_null());
  EXPECT_TRUE(json::parse(inspect(model("mixtral"), {"--json"}).out).at("latent_attention").is_null());
  EXPECT_THAT(inspect(model("mixtral")).out,
              AllOf(HasSubstr("experts       4 in a layer, each 40 wide, 2 for each token; none shared\n"),
                    HasSubstr("routing       softmax, greedy; weights normalized\n")));
}

TEST_F(ExpertsCommand, ScoreSaysWhyLatentAttentionIsNotFused) {
  const ProgramResult result = score(model("v2"), {"--decode", "fused", "--verbose", "--device", "cpu"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("heddle: decode steps of 1 to 16 texts: separate operators: queries have a latent of their own "
                        "(q_lora_rank), the fused block of latent attention takes none\n"));
}

TEST_F(ExpertsCommand, BenchCountsTheExpertsThatABatchReads) {
  const ProgramResult result = run_heddle({"bench", "decode", "--model", model("v2-lite"), "--device", "cpu", "--case",
                                           "1x8,5x8", "--tokens", "2", "--repeats", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json record = json::parse(result.out);
  EXPECT_EQ(record.at("experts"), json({{"count", 16}, {"per_token", 6}}));
  const json &one = record.at("cases").at(0), &five = record.at("cases").at(1);
  const double expected = 16 * (1 - std::pow(1 - 6.0 / 16, 5));
  EXPECT_DOUBLE_EQ(one.at("expected_experts").get<double>(), 6);
  EXPECT_NEAR(five.at("expected_experts").get<double>(), expected, 1e-9);
  // Of bfloat16: three matrices of 24 x 48 in two layers; the cache is 40 elements of three layers.
  const double weights = record.at("weight_bytes_per_step").get<double>(), expert = 2 * 3 * 24 * 48 * 2;
  const double cache = 40 * 3 * 2 * 9.5;
  EXPECT_NEAR(one.at("bytes_per_step").get<double>(), weights + cache, 1);
  EXPECT_NEAR(five.at("bytes_per_step").get<double>(), weights + (expected - 6) * expert + 5 * cache, 1);
}

TEST_F(ExpertsCommand, DamagedRoutersAndMissingExpertsEndWithTwoBeforeAnyOutput) {
  const struct {
    const char* name;
    ExpertsFamily::Change change;
    const char* message;
  } cases[] = {
      {"mixtral",
       {.without = "", .poisoned = "model.layers.1.block_sparse_moe.gate.weight"},
       "tensor \"model.layers.1.block_sparse_moe.gate.weight\""},
      {"v2",
       {.without = "", .poisoned = "model.layers.2.mlp.gate.weight"},
       "tensor \"model.layers.2.mlp.gate.weight\""},
      {"v3",
       {.without = "", .poisoned = "model.layers.1.mlp.gate.e_score_correction_bias"},
       "gate.e_score_correction_bias\" is damaged"},
      {"v2-lite",
       {.without = "model.layers.2.mlp.experts.9.up_proj.weight", .poisoned = ""},
       "tensor \"model.layers.2.mlp.experts.9.up_proj.weight\" is missing"},
  };
  for (const auto& c : cases) {
    const ProgramResult result = score(model(c.name, c.change));
    EXPECT_EQ(result.status, 2) << c.name;
    EXPECT_EQ(result.out, "") << c.name;
    EXPECT_THAT(result.err, AllOf(HasSubstr("heddle: error: "), HasSubstr(c.message))) << c.name;
  }
}

}  // namespace
}  // namespace heddle
