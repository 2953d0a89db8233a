// heddle bench sequence-attention: that its records are complete and say what they are of. Nothing about speed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> figure(int number, std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "sequence-attention", "--figure", std::to_string(number)});
  return more;
}

json record_of(int number, std::vector<std::string> more) {
  more.emplace_back("--json");
  const ProgramResult result = run_heddle(figure(number, std::move(more)));
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

std::vector<json> rows_of(const json& record, const std::string& source) {
  std::vector<json> rows;
  for (const json& row : record.at("rows"))
    if (row.at("source") == source) rows.push_back(row);
  return rows;
}

TEST(SequenceBench, PredictsTheAblationOfThePaper) {
  const json record = record_of(10, {});
  EXPECT_EQ(rows_of(record, "predicted").size(), 4u * 4);  // workloads by USP, TAS, Torus, one-sided
  EXPECT_EQ(rows_of(record, "measured").size(), 0u);
  EXPECT_EQ(record.at("rates").at("source"), "the paper's");
  EXPECT_EQ(record.at("rates").at("attention_tflops"), 200);
}

TEST(SequenceBench, MeasuresRanks) {
  const json record =
      record_of(10, {"--machines", "2", "--gpus", "1", "--tokens", "64", "--repeats", "2", "--ulysses", "2"});
  EXPECT_EQ(rows_of(record, "predicted").size(), 0u) << "the paper's rates say nothing about these ranks";
  const std::vector<json> measured = rows_of(record, "measured");
  ASSERT_EQ(measured.size(), 6u);  // strategies
  for (const json& row : measured) {
    EXPECT_GT(row.at("seconds").get<double>(), 0);
    EXPECT_EQ(row.at("spread").at("samples").size(), 2u);
    EXPECT_EQ(row.at("measured_elements"), row.at("counted_elements"));
    EXPECT_EQ(row.at("ranks_on"), "one host");
    EXPECT_EQ(row.at("emulated_machines"), true);
    EXPECT_LT(row.at("relative_error").get<double>(), 1e-5);
    EXPECT_GT(row.at("relative_error").get<double>(), 0) << "random numbers are never exact";
  }
  EXPECT_EQ(record.at("measured"), json({{"fabric", "shm"}, {"repeats", 2}, {"computation", "computed"}}));
}

TEST(SequenceBench, SaysThatOneMachineIsNotEmulatedAndThatComputationIsReplaced) {
  const ProgramResult result =
      run_heddle(figure(10, {"--gpus", "2", "--tokens", "64", "--repeats", "1", "--timed-waits"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("measured, timed waits"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("emulated")));
  EXPECT_THAT(run_heddle(figure(10, {"--machines", "2", "--tokens", "8", "--repeats", "1"})).out,
              HasSubstr("one host, emulated machines"));
}

// Waits as long as the forecast's computation: what a layer takes beyond them is exposed.
TEST(SequenceBench, MeasuresComputationAloneBesideTheLayer) {
  const std::vector<json> rows =
      rows_of(record_of(10, {"--machines", "2", "--tokens", "512", "--heads", "2", "--repeats", "3", "--timed-waits",
                             "--tflops", "0.001", "--emulate-links", "--machine-gbps", "0.001", "--compute-alone"}),
              "measured");
  ASSERT_EQ(rows.size(), 6u);
  for (const json& row : rows) {
    const double alone = row.at("compute_seconds").at("median"), whole = row.at("seconds");
    EXPECT_GT(alone, 4.0 * 512 * 512 * 64 / 1e9) << row << ": each of two ranks computes one head's flops";
    EXPECT_DOUBLE_EQ(row.at("exposed_seconds"), whole - alone);
    EXPECT_GT(whole - alone, 0.03) << row << ": 65 to 131 KB at 1 MB/s, of which Ring hides a half";
  }
}

TEST(SequenceBench, MeasuresEachFigureWhereRanksAre) {
  const auto measured = [](int number, std::vector<std::string> more) {
    more.insert(more.begin(), {"--machines", "2", "--gpus", "2", "--heads", "4", "--tokens", "32", "--repeats", "1"});
    return rows_of(record_of(number, std::move(more)), "measured");
  };
  std::map<std::string, int> strategies;
  for (const json& row : measured(7, {})) ++strategies[row.at("strategy")];
  EXPECT_EQ(strategies.size(), 6u);
  for (const auto& [strategy, count] : strategies) EXPECT_EQ(count, 1) << strategy << ": its fastest degree";

  std::set<int> degrees;
  for (const json& row : measured(8, {}))
    if (row.at("strategy") == "torus") degrees.insert(row.at("ulysses").get<int>());
  EXPECT_THAT(degrees, testing::ElementsAre(1, 2, 4));
  for (const json& row : measured(8, {"--ulysses", "2"}))
    EXPECT_TRUE(row.at("ulysses") == 2 || row.at("strategy") == "ring" || row.at("strategy") == "ulysses") << row;

  std::set<std::string> layers;
  for (const json& row : measured(9, {"--head-dim", "8,16", "--batch", "1,3"})) layers.insert(row.at("layer"));
  EXPECT_THAT(layers, testing::ElementsAre("32 tokens, 4 x 16", "32 tokens, 4 x 16, batch 3", "32 tokens, 4 x 8",
                                           "32 tokens, 4 x 8, batch 3"));
}

TEST(SequenceBench, MeasuresTheHalvesOfABatchBesideEachOther) {
  const auto measured = [](const std::string& machines, const std::string& gpus, std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"--machines", machines, "--gpus", gpus, "--heads", "4", "--tokens", "32", "--repeats", "1", "--cfg"});
    return rows_of(record_of(10, std::move(more)), "measured");
  };
  const std::vector<json> of_machines = measured("4", "2"), of_ranks = measured("3", "2"), alone = measured("2", "1");
  EXPECT_EQ(of_machines.size(), 6u);
  for (const json& row : of_machines) {
    EXPECT_EQ(row.at("layer"), "32 tokens, 4 x 64, batch 2 in halves");
    EXPECT_EQ(row.at("halves"), 2);
    EXPECT_EQ(row.at("machines"), 4);
    EXPECT_EQ(row.at("ulysses").get<int>() * row.at("ring").get<int>(), 4) << "ranks of a half";
    EXPECT_EQ(row.at("measured_elements"), row.at("counted_elements"));
  }
  ASSERT_FALSE(of_ranks.empty());
  for (const json& row : of_ranks) {
    EXPECT_EQ(row.at("ulysses").get<int>() * row.at("ring").get<int>(), 3);
    EXPECT_EQ(row.at("measured_elements"), row.at("counted_elements")) << "both halves leave the same machines";
  }
  for (const json& row : alone) EXPECT_EQ(row.at("measured_elements"), 0) << "a machine for each half";
  const std::vector<json> some = measured("4", "2", {"--timed-waits", "--strategy", "torus,usp"});
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].at("strategy"), "usp");
  EXPECT_EQ(some[1].at("strategy"), "torus");
}

// Rates that are given are of the ranks that are measured, or that are predicted alone.
TEST(SequenceBench, PredictsTheLayersOfRanksFromRatesThatAreGiven) {
  const std::vector<std::string> layers{"--machines", "2", "--tokens", "64", "--heads", "4", "--tflops", "0.01"};
  std::vector<std::string> runs = layers, alone = layers;
  runs.insert(runs.end(), {"--repeats", "1"});
  alone.emplace_back("--predict");
  const json beside = record_of(10, runs), predicted = record_of(10, alone);
  EXPECT_EQ(rows_of(beside, "measured").size(), 6u);
  EXPECT_EQ(rows_of(predicted, "measured").size(), 0u);
  for (const json& record : {beside, predicted}) {
    const std::vector<json> rows = rows_of(record, "predicted");
    ASSERT_EQ(rows.size(), 6u);
    for (const json& row : rows) {
      EXPECT_EQ(row.at("layer"), "64 tokens, 4 x 64");
      EXPECT_EQ(row.at("machines"), 2);
      EXPECT_GT(row.at("seconds").get<double>(), 4.0 * 64 * 64 * 64 * 4 / 2 / 1e10);
    }
  }
  const std::vector<json> fastest = rows_of(record_of(7, alone), "predicted");
  EXPECT_EQ(fastest.size(), 6u) << "a degree of each strategy";
}

TEST(SequenceBench, MeasuresThePiecesOfItsKernel) {
  const json record = record_of(12, {"--tokens", "64", "--heads", "2", "--repeats", "1"});
  ASSERT_EQ(record.at("rows").size(), 5u);  // 1 piece; 4 and 8 in one call and in as many
  EXPECT_EQ(record.at("rows").at(0).at("to_one_piece"), 1.0);
  for (const json& row : record.at("rows")) EXPECT_EQ(row.at("seconds").at("samples").size(), 1u);
}

TEST(SequenceBench, PredictsFromMeasuredRates) {
  const TemporaryFolder folder;
  const std::string rates = (folder.path() / "rates.json").string(), pieces = (folder.path() / "12.json").string(),
                    wrong = (folder.path() / "wrong.json").string();
  write_file(rates, R"({"attention_tflops": {"64": 100, "128": 400}, "machine_link_gbps": 25})");
  write_file(pieces, R"({"figure": 12, "rows": [
      {"case": "1 piece, 1 call", "head_dim": 64, "tokens": 4096, "tflops": 300},
      {"case": "1 piece, 1 call", "head_dim": 64, "tokens": 9216, "tflops": 350},
      {"case": "4 pieces, 1 call", "head_dim": 64, "tokens": 9216, "tflops": 10}]})");
  write_file(wrong, R"({"attention_gflops": 100})");

  const json of_rates = record_of(10, {"--rates", rates}).at("rates");
  EXPECT_EQ(of_rates.at("source"), rates);
  EXPECT_EQ(of_rates.at("attention_tflops"), json({{"64", 100}, {"128", 400}}));
  EXPECT_EQ(of_rates.at("machine_link_gbps"), 25);
  EXPECT_EQ(of_rates.at("gpu_link_gbps"), 250);

  const json of_both = record_of(10, {"--rates", rates, "--rates", pieces, "--machine-gbps", "30"});
  EXPECT_EQ(of_both.at("rates").at("attention_tflops"), json({{"64", 350}}));
  EXPECT_EQ(of_both.at("rates").at("machine_link_gbps"), 30);
  EXPECT_THAT(of_both.at("rates").at("source").get<std::string>(), HasSubstr(", options"));

  // A record is a source of the rates that it was made with.
  const std::string again = (folder.path() / "again.json").string();
  write_file(again, of_both.dump());
  json of_again = record_of(10, {"--rates", again}).at("rates");
  of_again["source"] = of_both.at("rates").at("source");
  EXPECT_EQ(of_again, of_both.at("rates"));

  const ProgramResult result = run_heddle(figure(10, {"--rates", wrong}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("attention_gflops"), HasSubstr("machine_link_gbps")));
}

TEST(SequenceBench, RejectsWhatAFigureDoesNotTake) {
  const struct {
    int number;
    std::vector<std::string> options;
    const char* message;
  } cases[] = {
      {10, {"--tokens", "9"}, "--tokens is of measured layers, and figure 10 measures none without --machines"},
      {10, {"--fabric", "nosuch"}, "--fabric is of measured layers"},
      {7, {"--timed-waits"}, "--timed-waits is of measured layers"},
      {10, {"--device", "cpu"}, "figure 10 does not take --device"},
      {10, {"--machines", "2", "--device", "cpu"}, "figure 10 does not take --device"},
      {10, {"--predict"}, "--predict is of layers on --machines and --gpus"},
      {10, {"--machines", "2", "--predict", "--eager"}, "--eager is of measured layers, and --predict measures none"},
      {12, {"--machines", "2"}, "figure 12 does not take --machines"},
      {12, {"--tflops", "3"}, "figure 12 does not take --tflops"},
      {12, {"--batch", "3"}, "figure 12 does not take --batch"},
      {12, {"--head-dim", "32,64"}, "one --head-dim"},
      {8,
       {"--machines", "2", "--gpus", "2", "--ulysses", "3"},
       "3 does not divide 4 ranks. usp, tas, torus and one_sided take a degree of 1, 2, 4; "
       "without a degree there is also ring, ulysses"},
      {10, {"--machines", "2", "--fabric", "nosuch"}, "nosuch"},
      {10, {"--machines", "2", "--strategy", "usp,nosuch"}, "nosuch"},
      {10,
       {"--machines", "2", "--heads", "3", "--strategy", "ulysses"},
       "does not divide 3 heads. usp, tas, torus and one_sided take a degree of 1; without a degree there is also "
       "ring"},
      {10, {"--cfg"}, "--cfg is of measured layers"},
      {10, {"--machines", "2", "--batch", "3", "--cfg"}, "2 halves of a batch of 3"},
      {10, {"--machines", "3", "--cfg"}, "3 machines of 1 GPUs do not divide"},
      {10, {"--machines", "2", "--gpus", "2", "--ulysses", "4", "--cfg"}, "4 does not divide 2 ranks"},
  };
  for (const auto& [number, options, message] : cases) {
    const ProgramResult result = run_heddle(figure(number, options));
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace heddle
