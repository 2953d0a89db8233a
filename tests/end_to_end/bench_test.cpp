// heddle bench on the demo model and a synthetic one: checks that its records are complete and consistent. It asserts
// nothing about speed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "end_to_end/program.h"
#include "machine/gpu.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::size_t kLongestRecord = std::size_t{16} << 20;

void expect_head(const json& record, const std::string& kind) {
  EXPECT_EQ(record.at("bench"), kind);
  EXPECT_FALSE(record.at("commit").get<std::string>().empty());
  EXPECT_EQ(record.at("command").at(1), "bench");
  EXPECT_EQ(record.at("command").at(2), kind);
  EXPECT_EQ(record.at("date").get<std::string>().size(), std::string("2026-01-01T00:00:00Z").size());
  EXPECT_THAT(record.at("machine").at("key").get<std::string>(), HasSubstr("core(s)"));
}

void expect_spread(const json& spread, std::size_t samples) {
  ASSERT_EQ(spread.at("samples").size(), samples);
  EXPECT_GT(spread.at("p10").get<double>(), 0);
  EXPECT_LE(spread.at("p10").get<double>(), spread.at("median").get<double>());
  EXPECT_LE(spread.at("median").get<double>(), spread.at("p90").get<double>());
}

json run_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  arguments.emplace_back("--json");
  const ProgramResult result = run_heddle(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(Bench, DecodeRecordsEachCase) {
  const json record = run_json({"decode", "--model", demo_model().string(), "--batch", "1,3", "--context", "0,40",
                                "--tokens", "3", "--repeats", "2", "--threads", "2"});
  expect_head(record, "decode");
  ASSERT_EQ(record.at("cases").size(), 4u);
  std::vector<double> bytes;
  for (const json& one : record.at("cases")) {
    expect_spread(one.at("seconds"), 2);
    expect_spread(one.at("floor_share"), 2);
    const json& shares = one.at("time_shares");
    EXPECT_GT(shares.at("attention").get<double>(), 0);
    EXPECT_GT(shares.at("linear").get<double>(), 0);
    EXPECT_NEAR(
        shares.at("attention").get<double>() + shares.at("linear").get<double>() + shares.at("other").get<double>(), 1,
        1e-9);
    EXPECT_EQ(one.at("check").at("finite"), true);
    bytes.push_back(one.at("bytes_per_step").get<double>() - record.at("weight_bytes_per_step").get<double>());
    EXPECT_NEAR(one.at("gbps").get<double>() * one.at("seconds").at("median").get<double>() * 1e9,
                one.at("bytes_per_step").get<double>() * 3, 1);
  }
  // Keys and values: contexts of 1, 2, 3 and of 41, 42, 43, for one sequence and for three.
  EXPECT_NEAR(bytes[1], 3 * bytes[0], 1);
  EXPECT_NEAR(bytes[2], 21 * bytes[0], 1);
  EXPECT_NEAR(bytes[3], 63 * bytes[0], 1);
}

TEST(Bench, OperatorTimesAllOfAStepAndChecksThem) {
  const json record = run_json(
      {"operator", "--model", "tiny", "--device", "cpu", "--case", "1x40,3x0", "--repeats", "2", "--threads", "1"});
  expect_head(record, "operator");
  EXPECT_EQ(record.at("device"), "cpu");
  ASSERT_EQ(record.at("cases").size(), 2u);
  EXPECT_EQ(record.at("cases").at(1).at("batch"), 3);
  for (const json& one : record.at("cases")) {
    // Without gather_rows, as every row is wanted; the first norm has no residual.
    EXPECT_EQ(one.at("operators").size(), 11u);
    double sum = 0;
    for (const json& each : one.at("operators")) {
      expect_spread(each.at("seconds"), 2);
      EXPECT_EQ(each.at("right"), true) << each;
      sum += each.at("seconds").at("median").get<double>() * each.at("calls_per_step").get<double>();
    }
    EXPECT_NEAR(one.at("seconds_per_step").get<double>(), sum, 1e-9);
  }
}

// A prompt's step, and operators by name.
TEST(Bench, OperatorCountsWhatAPromptComputes) {
  const json record = run_json({"operator", "--model", "tiny", "--device", "cpu", "--operator", "attention,swiglu",
                                "--tokens", "4", "--context", "10", "--repeats", "1", "--threads", "1"});
  const json& operators = record.at("cases").at(0).at("operators");
  ASSERT_EQ(operators.size(), 2u);
  EXPECT_EQ(operators.at(0).at("operator"), "attention");
  EXPECT_DOUBLE_EQ(operators.at(0).at("flops").get<double>(), 4.0 * (11 + 12 + 13 + 14) * 4 * 32) << "4 heads of 32";
}

TEST(Bench, WaferRecordsItsRatesAndALayer) {
  const json record = run_json({"wafer", "--repeats", "1"});
  expect_head(record, "wafer");
  for (const char* rate :
       {"timing_core_steps_per_second", "timing_rendezvous_core_steps_per_second", "values_macs_per_second"})
    expect_spread(record.at(rate), 1);
  const json& layer = record.at("prefill_layer");
  expect_spread(layer.at("seconds"), 1);
  EXPECT_NEAR(layer.at("cycles").get<double>() / layer.at("closed_form_cycles").get<double>(), 1, 0.01);
}

TEST(Bench, FusedOperatorsRecordEachVariantAndItsError) {
  const auto expect_variants = [](const std::string& kind, const std::string& shard, const std::string& dtype,
                                  const std::vector<std::string>& variants) {
    SCOPED_TRACE(kind + " " + shard + " " + dtype);
    // Shards of unequal length, and one row for three ranks.
    const json record = run_json({kind, "--ranks", "3", "--device", "cpu", "--m", "1,5", "--n", "10", "--k", "31",
                                  "--shard", shard, "--dtype", dtype, "--repeats", "2"});
    expect_head(record, kind);
    EXPECT_EQ(record.at("ranks"), 3);
    ASSERT_EQ(record.at("results").size(), 2 * variants.size());
    for (std::size_t i = 0; i < 2 * variants.size(); ++i) {
      const json& one = record.at("results").at(i);
      EXPECT_EQ(one.at("variant"), variants[i % variants.size()]);
      EXPECT_EQ(one.at("m"), i < variants.size() ? 1 : 5);
      EXPECT_EQ(one.at("n"), 10);
      EXPECT_EQ(one.at("k"), 31);
      EXPECT_EQ(one.at("shard"), shard);
      EXPECT_EQ(one.at("dtype"), dtype);
      EXPECT_GT(one.at("microseconds").get<double>(), 0);
      // All three are of one rank's samples.
      EXPECT_LE(one.at("p10_microseconds").get<double>(), one.at("microseconds").get<double>());
      EXPECT_GE(one.at("p90_microseconds").get<double>(), one.at("microseconds").get<double>());
      EXPECT_LT(one.at("max_relative_error").get<double>(), 1e-5);
      if (one.at("variant") == "bsp") {
        EXPECT_EQ(one.at("bsp_is"), "own");
        EXPECT_EQ(one.at("bsp_microseconds").at("own"), one.at("microseconds"));
      }
    }
  };
  for (const char* shard : {"k", "m"})
    for (const char* dtype : {"float32", "bfloat16"})
      expect_variants("all-gather-linear", shard, dtype, {"bsp", "pull", "push", "copy"});
  expect_variants("linear-reduce-scatter", "k", "float16", {"bsp", "fused"});
  expect_variants("linear-all-reduce", "m", "float32", {"bsp", "fused"});
}

TEST(Bench, FlashDecodeRecordsEachStageAndItsError) {
  // Fewer keys than ranks: one rank has none. And so many that a rank's keys and values repeat.
  const json record =
      run_json({"flash-decode", "--ranks", "3", "--device", "cpu", "--heads", "4", "--kv-heads", "2", "--head-dim",
                "24", "--batch", "1,3", "--context", "2,13000", "--dtype", "bfloat16", "--repeats", "2"});
  expect_head(record, "flash-decode");
  ASSERT_EQ(record.at("results").size(), 16u);
  const char* const variants[] = {"bsp", "all-gather", "waits", "push"};
  for (std::size_t i = 0; i < 16; ++i) {
    const json& one = record.at("results").at(i);
    EXPECT_EQ(one.at("variant"), variants[i % 4]);
    EXPECT_EQ(one.at("batch"), i < 8 ? 1 : 3);
    EXPECT_EQ(one.at("context"), i % 8 < 4 ? 2 : 13000);
    EXPECT_EQ(one.at("heads"), 4);
    EXPECT_EQ(one.at("kv_heads"), 2);
    EXPECT_EQ(one.at("head_dim"), 24);
    EXPECT_EQ(one.at("heads_checked"), i < 8 ? 4 : 12);  // all: there are few
    EXPECT_EQ(one.at("ranks"), 3);
    EXPECT_GT(one.at("microseconds").get<double>(), 0);
    EXPECT_LT(one.at("max_relative_error").get<double>(), 1e-4);
  }
}

TEST(Bench, FlashDecodeTakesLatentsThatAreKeysAndValues) {
  const json record = run_json({"flash-decode", "--ranks", "2", "--device", "cpu", "--heads", "4", "--kv-heads", "1",
                                "--head-dim", "36", "--value-dim", "32", "--context", "1,300", "--repeats", "2"});
  ASSERT_EQ(record.at("results").size(), 8u);
  for (const json& one : record.at("results")) {
    EXPECT_EQ(one.at("value_dim"), 32);
    EXPECT_LT(one.at("max_relative_error").get<double>(), 1e-4);
  }
}

TEST(Bench, FusedOperatorsRefuseWhatTheyCannotRunAndSayWhy) {
  const auto refusal = [](std::vector<std::string> arguments, const ProgramOptions& options = {}) {
    arguments.insert(arguments.begin(), "bench");
    const ProgramResult result = run_heddle(arguments, options);
    EXPECT_EQ(result.status, 2) << result.err;
    return result.err;
  };
  if (discover_gpus().gpus.empty()) {
    EXPECT_THAT(refusal({"all-gather-linear", "--device", "cuda:0,cuda:0"}),
                HasSubstr("--device cpu runs the ranks as threads"));
  }
  EXPECT_THAT(refusal({"all-gather-linear", "--device", "cuda:0,cpu"}), HasSubstr("all on the CPU, or all on GPUs"));
  EXPECT_THAT(refusal({"linear-all-reduce", "--ranks", "3", "--device", "cpu,cpu"}),
              HasSubstr("names 2 devices for 3 ranks"));
  EXPECT_THAT(refusal({"linear-all-reduce", "--device", "tpu"}), HasSubstr("\"tpu\" is no device"));
  EXPECT_THAT(refusal({"linear-reduce-scatter", "--ranks", "4", "--k", "3"}), HasSubstr("--k 3: 4 ranks divide"));
  EXPECT_THAT(refusal({"all-gather-linear", "--ranks", "4", "--n", "3"}), HasSubstr("--n 3: 4 ranks divide"));
  EXPECT_THAT(refusal({"flash-decode", "--heads", "6", "--kv-heads", "4"}),
              HasSubstr("--heads 6: is no multiple of --kv-heads 4"));
  EXPECT_THAT(refusal({"flash-decode", "--context", "0"}), HasSubstr("--context"));
  EXPECT_THAT(refusal({"flash-decode", "--value-dim", "129"}), HasSubstr("--value-dim 129: more than --head-dim 128"));
  EXPECT_THAT(refusal({"all-gather-linear", "--m", "0"}), HasSubstr("--m"));
  EXPECT_THAT(refusal({"all-gather-linear", "--ranks", "0"}), HasSubstr("--ranks"));
  EXPECT_THAT(refusal({"all-gather-linear", "--shard", "n"}), HasSubstr("expected k or m"));
  EXPECT_THAT(refusal({"all-gather-linear", "--launch", "nobody"}), HasSubstr("--launch"));
  const ProgramOptions as_rank_of_two{.environment = {{"OMPI_COMM_WORLD_RANK", "0"},
                                                      {"OMPI_COMM_WORLD_SIZE", "2"},
                                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                      {"PMIX_NAMESPACE", "a-run"}}};
  EXPECT_THAT(refusal({"linear-all-reduce", "--ranks", "3"}, as_rank_of_two),
              HasSubstr("--ranks 3 in a run of 2 ranks"));
}

TEST(Bench, FlagTimesRankZeroWithEachOther) {
  const json record = run_json({"flag", "--ranks", "3", "--rounds", "5", "--repeats", "2"});
  EXPECT_EQ(record.at("fabric"), "shm");
  EXPECT_EQ(record.at("order"), "release");
  ASSERT_EQ(record.at("pairs").size(), 2u);
  for (const json& pair : record.at("pairs")) expect_spread(pair.at("seconds"), 2);
  EXPECT_EQ(record.at("pairs").at(1).at("ranks"), json({0, 2}));
}

TEST(Bench, TokenWeaveTimesWorkloadsInEachMode) {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "lengths.jsonl").string();
  write_file(trace, "{\"prompt_tokens\": 40, \"output_tokens\": 3}\n");
  const std::string drawing = (folder.path() / "12.svg").string();
  const json record =
      run_json({"token-weave", "--figure", "12", "--model", "synth:tiny", "--tp", "2", "--device", "cpu", "--lengths",
                "20:2", "--trace", trace, "--num-prompts", "2", "--repeats", "1", "--svg", drawing});
  EXPECT_EQ(record.at("model"), "synth:tiny");
  std::vector<std::string> rows;
  for (const json& row : record.at("rows")) {
    rows.push_back(row.at("mode").get<std::string>() + " " + row.at("workload").get<std::string>());
    EXPECT_EQ(row.at("prompt_tokens"), row.at("workload") == "trace" ? 80 : 40) << rows.back();
    EXPECT_EQ(row.at("output_tokens"), row.at("workload") == "trace" ? 6 : 4) << rows.back();
    EXPECT_GT(row.at("tokens_per_second").get<double>(), 0) << rows.back();
  }
  EXPECT_THAT(rows, testing::ElementsAre("default 20:2", "symmetric 20:2", "fused 20:2", "weave 20:2", "sequence 20:2",
                                         "auto 20:2", "no-comm 20:2", "default trace", "symmetric trace", "fused trace",
                                         "weave trace", "sequence trace", "auto trace", "no-comm trace"));
  EXPECT_THAT(read_file(drawing, kLongestRecord),
              testing::AllOf(HasSubstr("Throughput"), HasSubstr(">no-comm<"), HasSubstr("</svg>")));
}

TEST(Bench, TokenWeaveTimesStepsBySizeOfTheirChunks) {
  const json record =
      run_json({"token-weave", "--figure", "13", "--model", "synth:tiny", "--tp", "2", "--device", "cpu", "--lengths",
                "20:2", "--step-tokens", "8,16", "--num-prompts", "2", "--repeats", "1"});
  ASSERT_EQ(record.at("rows").size(), 14);
  EXPECT_EQ(record.at("rows")[7].at("step_tokens"), 16);
  const json& weave = record.at("rows")[3];
  EXPECT_EQ(weave.at("mode"), "weave");
  EXPECT_EQ(weave.at("split_tokens"), nullptr) << "untuned, on the CPU";
  EXPECT_EQ(weave.at("steps_in_two_parts"), 0);
}

TEST(Bench, TokenWeaveTimesALayerInEachMode) {
  const json record = run_json({"token-weave", "--figure", "14", "--model", "synth:tiny,layers=1", "--tp", "2",
                                "--device", "cpu", "--tokens", "32", "--repeats", "2"});
  std::vector<std::string> modes;
  for (const json& row : record.at("rows")) modes.push_back(row.at("mode").get<std::string>());
  EXPECT_THAT(modes, testing::ElementsAre("no-comm", "default", "symmetric", "fused", "weave", "sequence"));
  EXPECT_EQ(record.at("rows")[4].at("prefix_tokens"), 16);
}

// Two norms a layer and the last one; each takes time, and all of them less than the step.
TEST(Bench, TokenWeaveGivesTheShareOfNormsInAStep) {
  const TemporaryFolder folder;
  const std::string drawing = (folder.path() / "3.svg").string();
  const json record = run_json({"token-weave", "--figure", "3", "--model", "synth:tiny,layers=3", "--tp", "2",
                                "--device", "cpu", "--tokens", "32,64", "--repeats", "2", "--svg", drawing});
  ASSERT_EQ(record.at("rows").size(), 2);
  for (const json& row : record.at("rows")) {
    EXPECT_EQ(row.at("norms"), 2 * 3 + 1);
    EXPECT_GT(row.at("norm_seconds").get<double>(), 0);
    expect_spread(row.at("seconds"), 2);
    EXPECT_DOUBLE_EQ(row.at("of_step").get<double>(),
                     row.at("norm_seconds").get<double>() / row.at("seconds").at("median").get<double>());
  }
  EXPECT_EQ(record.at("rows")[1].at("tokens"), 64);
  EXPECT_THAT(read_file(drawing, kLongestRecord), testing::AllOf(HasSubstr("RMSNorm"), HasSubstr("</svg>")));
}

// One token is fewer than two ranks, so two-phase has no row of it.
TEST(Bench, TokenWeaveTimesTheFusedOperatorInEachRegimeThatASizeHas) {
  const json record = run_json({"token-weave", "--figure", "4", "--ranks", "2", "--hidden", "64", "--tokens", "1,4",
                                "--repeats", "2", "--regime", "one_shot,two_phase,pipelined"});
  std::vector<std::string> rows;
  for (const json& row : record.at("rows"))
    if (row.at("way").get<std::string>().starts_with("fused"))
      rows.push_back(fmt::format("{} {}", row.at("way").get<std::string>(), row.at("tokens").get<int>()));
  EXPECT_THAT(rows, testing::ElementsAre("fused 1", "fused, one_shot 1", "fused, pipelined 1", "fused 4",
                                         "fused, one_shot 4", "fused, two_phase 4", "fused, pipelined 4"));
}

std::vector<std::string> ways_of(const json& record) {
  std::vector<std::string> ways;
  for (const json& row : record.at("rows")) {
    EXPECT_GT(row.at("microseconds").get<double>(), 0);
    EXPECT_LE(row.at("p10_microseconds"), row.at("p90_microseconds"));
    ways.push_back(row.at("way"));
  }
  return ways;
}

TEST(Bench, TokenWeaveHasTheWaysOfEachFigureOfOperators) {
  const std::pair<const char*, std::vector<std::string>> figures[] = {
      {"4", {"Heddle's all-reduce, norm", "reduce-scatter, norm, all-gather", "fused"}},
      {"5", {"Heddle's all-reduce", "reduce-scatter, all-gather"}},
      {"6", {"reduce-scatter"}},
      {"7", {"all-reduce, 3 tokens"}},
      {"10", {"fused, 3 tokens"}}};
  for (const auto& [figure, ways] : figures) {
    SCOPED_TRACE(figure);
    const json record = run_json(
        {"token-weave", "--figure", figure, "--ranks", "2", "--hidden", "64", "--tokens", "3", "--repeats", "5"});
    EXPECT_EQ(ways_of(record), ways);
    EXPECT_EQ(record.at("ranks"), 2);
  }
}

TEST(Bench, TokenWeaveHasTheStepsOfEachFigureOfAModel) {
  for (const std::string figure : {"1", "9", "11"}) {
    SCOPED_TRACE(figure);
    const json record = run_json({"token-weave", "--figure", figure, "--model", "synth:tiny,layers=1", "--tp", "2",
                                  "--device", "cpu", "--tokens", "32", "--repeats", "2"});
    std::set<std::string> modes;
    for (const json& row : record.at("rows")) {
      modes.insert(row.at("mode"));
      EXPECT_EQ(row.at("tokens"), 32);
      expect_spread(row.at("seconds"), 2);
    }
    EXPECT_THAT(modes, testing::Contains("no-comm")) << "what others are compared with";
  }
}

TEST(Bench, TokenWeaveComparesTheNormAloneWithTheFusedOperatorOfOneRank) {
  const json record =
      run_json({"token-weave", "--figure", "4", "--ranks", "1", "--hidden", "64", "--tokens", "4", "--repeats", "2"});
  ASSERT_EQ(record.at("rows").size(), 2);
  EXPECT_EQ(record.at("rows")[0].at("way"), "norm");
  EXPECT_EQ(record.at("rows")[1].at("way"), "fused");
}

TEST(Bench, TokenWeaveSaysWhatAFigureOfAModelNeeds) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--figure", "12"}, "give --model"},
      {{"--figure", "13", "--model", "synth:tiny"}, "give --tp N"},
      {{"--figure", "3", "--model", "synth:tiny", "--tp", "2", "--sms", "8"}, "figure 3 does not take --sms"},
      {{"--figure", "12", "--model", "synth:tiny", "--tp", "2", "--lengths", "3"}, "such as 1024:128"},
      {{"--figure", "12", "--model", "synth:tiny", "--tp", "2", "--trace", "/nowhere/at/all"}, "/nowhere/at/all"},
      {{"--figure", "14", "--model", "synth:tiny", "--tp", "2"}, "give --model synth:NAME,layers=1"},
      {{"--figure", "4", "--model", "synth:tiny"}, "figure 4 does not take --model"},
      {{"--figure", "4", "--tp", "2"}, "figure 4 does not take --tp"},
      {{"--figure", "10", "--sms", "2,16"}, "--sms is of GPUs"},
      {{"--figure", "5", "--regime", "one_shot"}, "figure 5 does not take --regime"},
      {{"--figure", "4", "--regime", "direct"}, "expected one_shot, two_phase or pipelined"},
      {{"--figure", "11", "--model", "synth:tiny", "--tp", "2", "--trace", "x"}, "figure 11 does not take --trace"},
      {{"--figure", "2"}, "expected one of 1, 3, 4"}};
  for (const auto& [given, message] : cases) {
    std::vector<std::string> args{"bench", "token-weave"};
    args.insert(args.end(), given.begin(), given.end());
    const ProgramResult result = run_heddle(args);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST(Bench, PrefillCountsArithmetic) {
  const json record =
      run_json({"prefill", "--model", demo_model().string(), "--tokens", "32", "--context", "0,32", "--repeats", "1"});
  expect_head(record, "prefill");
  ASSERT_EQ(record.at("cases").size(), 2u);
  const json& flops = record.at("cases").at(0).at("flops");
  const json& deeper = record.at("cases").at(1).at("flops");
  EXPECT_EQ(flops.at("linear"), deeper.at("linear"));
  EXPECT_NEAR(deeper.at("attention").get<double>() / flops.at("attention").get<double>(), (32 + 16.5) / 16.5, 1e-9);
}

TEST(Bench, PromptsOfABatchGoOnTogether) {
  const json record = run_json({"prefill", "--model", demo_model().string(), "--batch", "1,3", "--tokens", "16",
                                "--step-tokens", "12", "--repeats", "1"});
  ASSERT_EQ(record.at("cases").size(), 2u);
  const json& one = record.at("cases").at(0);
  const json& three = record.at("cases").at(1);
  EXPECT_EQ(three.at("batch"), 3);
  EXPECT_EQ(one.at("step_tokens"), 12);
  EXPECT_EQ(three.at("step_tokens"), 4);  // of each prompt, which go on together
  EXPECT_NEAR(three.at("flops").at("attention").get<double>(), 3 * one.at("flops").at("attention").get<double>(), 1);
  EXPECT_NEAR(three.at("tokens_per_second").get<double>() * three.at("seconds").at("median").get<double>(), 3 * 16,
              1e-6);
}

TEST(Bench, AStepHasATokenOfEachPromptAtLeast) {
  const ProgramResult result = run_heddle(
      {"bench", "prefill", "--model", demo_model().string(), "--batch", "5", "--tokens", "8", "--step-tokens", "4"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--step-tokens 5 or more"));
}

TEST(Bench, CasesAreInPlaceOfBatchesAndContexts) {
  for (const char* other : {"--batch", "--context"}) {
    const ProgramResult result =
        run_heddle({"bench", "decode", "--model", demo_model().string(), "--case", "1x8", other, "2"});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("excludes"));
  }
}

TEST(Bench, LoadAndTokenizeGoToAFileWithTheTableOnStandardOutput) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "load.json").string();
  const ProgramResult load =
      run_heddle({"bench", "load", "--model", demo_model().string(), "--repeats", "2", "--json", file});
  ASSERT_EQ(load.status, 0) << load.err;
  EXPECT_THAT(load.out, HasSubstr("first token s"));
  const json record = json::parse(read_file(file, kLongestRecord));
  expect_head(record, "load");
  expect_spread(record.at("seconds"), 2);
  EXPECT_GT(record.at("bytes").get<double>(), 1e6);

  const std::string text = (folder.path() / "text").string();
  write_file(text, "137 + 254 = 391\n");
  const ProgramResult tokenize =
      run_heddle({"bench", "tokenize", "--model", demo_model().string(), "--text", text, "--repeats", "3", "--json"});
  ASSERT_EQ(tokenize.status, 0) << tokenize.err;
  const json tokens = json::parse(tokenize.out);
  expect_head(tokens, "tokenize");
  EXPECT_EQ(tokens.at("bytes"), 16);
  EXPECT_EQ(tokens.at("decodes_to_the_same_text"), true);
  expect_spread(tokens.at("encode_seconds"), 3);
}

// A small adapter in place of a baseline.
struct BaselineCase {
  const char* adapter;  // after `import json, sys`
  int status;
  const char* message;
};

constexpr const char* kGoodBaseline = R"(
def say(x): print(json.dumps(x), flush=True)
say({"hello": {"name": "mirror", "version": "1", "settings": {}}})
for line in sys.stdin:
    request = json.loads(line)
    if "case" in request:
        case = request["case"]
        assert len(case["input_tokens"]) == case["batch"] and len(case["context_tokens"]) == case["context"]
        rows = case["batch"] * len(case["input_tokens"][0])
        say({"ready": {"mode": case["mode"]}})
    elif "sample" in request:
        say({"seconds": 0.5})
    else:
        say({"argmax": [0] * rows, "probes": [0.0] * request["check"]["probes"]})
)";

// Baselines are Python programs.
class BenchBaseline : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  }
};

ProgramResult run_with_baseline(const TemporaryFolder& folder, const std::string& adapter) {
  write_file(folder.path() / "mirror_1.py", "import json, sys\n" + adapter);
  ::setenv("HEDDLE_BASELINES", folder.path().c_str(), 1);
  const ProgramResult result =
      run_heddle({"bench", "decode", "--model", demo_model().string(), "--tokens", "2", "--batch", "2", "--context",
                  "5", "--repeats", "3", "--compare", "mirror.1", "--json"});
  ::unsetenv("HEDDLE_BASELINES");
  return result;
}

TEST_F(BenchBaseline, IsInterleavedWithHeddle) {
  const TemporaryFolder folder;
  const ProgramResult result = run_with_baseline(folder, kGoodBaseline);
  ASSERT_EQ(result.status, 0) << result.err;
  const json record = json::parse(result.out);
  EXPECT_EQ(record.at("peer").at("name"), "mirror");
  const json& one = record.at("cases").at(0);
  expect_spread(one.at("peer_seconds"), 3);
  expect_spread(one.at("paired_ratio"), 3);
  EXPECT_DOUBLE_EQ(one.at("peer_seconds").at("median").get<double>(), 0.5);
  EXPECT_NEAR(one.at("ratio_of_medians").get<double>() * one.at("seconds").at("median").get<double>(), 0.5, 1e-9);
  EXPECT_EQ(one.at("check").at("rows"), 4);
  EXPECT_EQ(one.at("peer_case").at("mode"), "decode");
}

// An operator baseline that rejects attention, and takes a second for each call of the others.
constexpr const char* kOperatorBaseline = R"(
def say(x): print(json.dumps(x), flush=True)
say({"hello": {"name": "mirror", "version": "1", "settings": {}}})
for line in sys.stdin:
    request = json.loads(line)
    if "case" in request:
        case = request["case"]
        assert case["mode"] == "operator" and case["rows"] == 2 and case["sets"] > 0 and case["calls"] > 0
        assert case["operator"] != "linear" or case["in_features"] > 0
        say({"ready": {"refused": "no attention here"} if case["operator"] == "attention" else {"way": "plain"}})
    else:
        say({"seconds": 1.0})
)";

ProgramResult run_operators_with_baseline(const std::string& adapter, const std::vector<std::string>& more = {}) {
  const TemporaryFolder folder;
  write_file(folder.path() / "mirror_operators.py", "import json, sys\n" + adapter);
  ::setenv("HEDDLE_BASELINES", folder.path().c_str(), 1);
  std::vector<std::string> arguments{"bench",     "operator",   "--model",          "tiny",    "--device",
                                     "cpu",       "--operator", "linear,attention", "--batch", "2",
                                     "--repeats", "3",          "--compare",        "mirror"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramResult result = run_heddle(arguments);
  ::unsetenv("HEDDLE_BASELINES");
  return result;
}

TEST_F(BenchBaseline, InterleavesOperatorsWithABaselineWhichMayRejectSome) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "record.json").string();
  const ProgramResult result = run_operators_with_baseline(kOperatorBaseline, {"--json", file});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the baseline does not run attention: \"no attention here\""));
  EXPECT_THAT(result.out, HasSubstr("mirror us"));
  const json record = json::parse(read_file(file, kLongestRecord));
  EXPECT_EQ(record.at("peer").at("name"), "mirror");
  for (const json& one : record.at("cases").at(0).at("operators")) {
    expect_spread(one.at("seconds"), 3);
    const bool rejected = one.at("operator") == "attention";
    EXPECT_NE(one.contains("peer_seconds"), rejected);
    if (rejected) continue;
    EXPECT_EQ(one.at("peer_case").at("way"), "plain");
    expect_spread(one.at("paired_ratio"), 3);
    EXPECT_NEAR(one.at("ratio_of_medians").get<double>() * one.at("seconds").at("median").get<double>(), 1, 1e-9);
  }
}

TEST_F(BenchBaseline, SaysWhatIsWrongWithABaselineOfOperators) {
  const char* const hello = "print('{\"hello\": {}}', flush=True)\nsys.stdin.readline()\n";
  const BaselineCase cases[] = {
      {"sys.exit('no such library')", 1, "no such library"},
      {hello, 1, "it has ended"},
      {"print('{\"hello\": {}}', flush=True)\nfor line in sys.stdin: print('{}', flush=True)", 1, "no seconds"}};
  for (const BaselineCase& one : cases) {
    const ProgramResult result = run_operators_with_baseline(one.adapter);
    EXPECT_EQ(result.status, one.status) << one.adapter;
    EXPECT_THAT(result.err, HasSubstr(one.message)) << one.adapter;
    EXPECT_EQ(result.out, "") << one.adapter;
  }
}

TEST_F(BenchBaseline, SaysWhatIsWrongWithABaseline) {
  const BaselineCase cases[] = {
      {"", 1, "it has ended"},
      {"sys.exit('no such library')", 1, "no such library"},
      {"print('hello')", 1, "baseline mirror.1"},
      {"print('[1]')", 1, "not a JSON object"},
      {"print('{}')", 1, "not a hello"},
      {"print('{\"hello\": {}}', flush=True)\nsys.stdin.readline()\nprint('{\"error\": \"too large\"}', flush=True)", 1,
       "too large"},
      {"print('{\"hello\": {}}', flush=True)\nfor line in sys.stdin: print('{\"seconds\": -1}', flush=True)", 1,
       "no seconds"},
      // Ctrl-C reaches both: the end of the baseline is then not a failure.
      {"import os, signal\nos.kill(os.getppid(), signal.SIGINT)", 130, ""},
      {"print('{\"hello\": {}}', flush=True)\nimport os, signal\nsys.stdin.readline()\n"
       "os.kill(os.getppid(), signal.SIGTERM)",
       143, ""},
  };
  for (const BaselineCase& one : cases) {
    const TemporaryFolder folder;
    const ProgramResult result = run_with_baseline(folder, one.adapter);
    EXPECT_EQ(result.status, one.status) << one.adapter;
    EXPECT_THAT(result.err, HasSubstr(one.message)) << one.adapter;
    EXPECT_EQ(result.out, "") << one.adapter;
  }
}

TEST(Bench, LoadWritesAMadeUpModelFirst) {
  const TemporaryFolder cache;
  ::setenv("HEDDLE_CACHE_DIR", cache.path().c_str(), 1);
  const json record = run_json({"load", "--model", "synth:tiny", "--repeats", "1"});
  ::unsetenv("HEDDLE_CACHE_DIR");
  expect_head(record, "load");
  EXPECT_EQ(record.at("model"), "synth:tiny");
  EXPECT_GT(record.at("bytes").get<double>(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(cache.path())) << "the folder is gone again";
}

TEST(Bench, LoadAsksForTheDeviceBeforeItWritesAModel) {
  const ProgramResult result = run_heddle({"bench", "load", "--model", "synth:tiny", "--device", "cuda:99"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, testing::StartsWith("heddle: error: --device cuda:99: "));
  EXPECT_THAT(result.err, testing::Not(HasSubstr("writing")));
}

TEST(Bench, FindsBeforeItMeasuresThatTheRecordCannotBeWritten) {
  for (const char* file : {"/nonexistent/record.json", "/tmp"}) {
    const ProgramResult result = run_heddle({"bench", "decode", "--model", "/no/model", "--json", file});
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.err, HasSubstr(file));
  }
}

TEST(Bench, ThroughputCountsEveryToken) {
  const json record = run_json({"throughput", demo_model().string(), "--num-prompts", "5", "--input-len", "12",
                                "--output-len", "7", "--max-sequences", "3", "--threads", "2"});
  expect_head(record, "throughput");
  EXPECT_EQ(record.at("prompt_tokens"), 5 * 12);
  EXPECT_EQ(record.at("output_tokens"), 5 * 7);
  EXPECT_GE(record.at("steps"), 2 * 7);
  EXPECT_GT(record.at("output_tokens_per_s").get<double>(), 0);
}

TEST(Bench, ServeSaysWhatIsWrong) {
  // Port 1 is privileged, and nothing listens there.
  const ProgramResult closed = run_heddle({"bench", "serve", "--url", "http://127.0.0.1:1"});
  EXPECT_EQ(closed.status, 1);
  EXPECT_THAT(closed.err, HasSubstr("http://127.0.0.1:1/v1/models: "));
  const struct {
    std::vector<std::string> options;
    const char* error;
  } cases[] = {
      {{"--rate", "0"}, "--rate: is \"0\", expected numbers of at least 0.001"},
      {{"--concurrency", "4,x"}, "--concurrency: is \"4,x\""},
      {{"--goodput", "ttft"}, "expected limits in milliseconds"},
      {{"--first-token", "9", "--last-token", "3"}, "--first-token is larger than --last-token"},
  };
  for (const auto& [options, error] : cases) {
    std::vector<std::string> arguments{"bench", "serve"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, 2) << error;
    EXPECT_THAT(result.err, HasSubstr(error));
  }
}

TEST(Bench, RefusesWhatItCannotMeasure) {
  struct Refusal {
    std::vector<std::string> arguments;
    const char* message;
  };
  const std::string model = demo_model().string();
  const Refusal refusals[] = {
      {{"decode", "--model", model, "--batch", "1,,2"}, "--batch"},
      {{"decode", "--model", model, "--batch", "0"}, "--batch"},
      {{"decode", "--model", model, "--case", "1x"}, "--case"},
      {{"decode", "--model", model, "--case", "1"}, "--case"},
      {{"decode", "--model", model, "--case", "1x2,"}, "--case"},
      {{"operator", "--model", "tiny", "--operator", "softmax"}, "--operator"},
      {{"operator", "--model", "no-such-model"}, "no-such-model"},
      {{"block", "--figure", "20", "--shape", "deepseek-v2-lite"}, "choose one of llama-"},
      {{"block", "--figure", "13", "--shape", "deepseek-v2-lite"}, "choose one of llama-"},
      {{"block", "--figure", "11", "--shape", "llama-2-7b"}, "has shapes of its own (32 heads, 64 heads, 128 heads)"},
      {{"block", "--figure", "18", "--batch", "4"}, "--figure 18 has 16 sequences: leave out --batch"},
      {{"block", "--figure", "9", "--batch", "16"}, "--figure 9 has 1 sequence: leave out --batch"},
      {{"block", "--shape", "32 heads"}, "no shape 32 heads"},
      {{"block", "--figure", "21"}, "--figure: 21 not in {9,11,13,18,20}"},
      {{"operator", "--model", "tiny", "--device", "cpu", "--compare", "llama.cpp"}, "operators have torch"},
      {{"decode", "--model", model, "--batch", "1,"}, "--batch"},
      {{"decode", "--model", model, "--context", "-1"}, "--context"},
      {{"decode", "--model", model, "--context", "1000000"}, "context"},
      {{"decode", "--model", model, "--repeats", "0"}, "--repeats"},
      {{"decode", "--model", model, "--compare", "no-such-baseline"}, "no_such_baseline.py"},
      {{"decode", "--model", model, "--compare", "../x"}, "not a baseline's name"},
      {{"tokenize", "--model", model, "--text", "/nowhere/at/all"}, "/nowhere/at/all"},
      {{}, "which command?"},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::string> arguments{"bench"};
    arguments.insert(arguments.end(), refusal.arguments.begin(), refusal.arguments.end());
    const ProgramResult result = run_heddle(arguments);
    EXPECT_EQ(result.status, 2) << refusal.message;
    EXPECT_THAT(result.err, HasSubstr(refusal.message));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace heddle
