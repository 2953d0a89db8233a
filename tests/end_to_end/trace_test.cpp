// heddle trace: what it writes, and that it changes nothing else of the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::size_t kLongestTrace = std::size_t{64} << 20;

struct Traced {
  ProgramResult result;
  json trace, report;
  std::string bars;
};

Traced traced(std::vector<std::string> command) {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "trace.json").string(), report = (folder.path() / "report.json").string(),
                    bars = (folder.path() / "bars.svg").string();
  command.insert(command.begin(), {"trace", "-o", trace, "--report", report, "--bars", bars});
  Traced out{run_heddle(command), {}, {}, {}};
  EXPECT_EQ(out.result.status, 0) << out.result.err;
  out.trace = json::parse(read_file(trace, kLongestTrace), nullptr, false);
  out.report = json::parse(read_file(report, kLongestTrace), nullptr, false);
  out.bars = read_file(bars, kLongestTrace);
  return out;
}

// The parts of a step add up to it, on every rank and of every variant.
void expect_partition(const json& report, int ranks, std::size_t variants) {
  ASSERT_EQ(report.at("steps").size(), static_cast<std::size_t>(ranks) * variants);
  for (std::size_t i = 0; i < report.at("steps").size(); ++i) {
    const json& one = report.at("steps").at(i);
    EXPECT_EQ(one.at("rank"), i / variants);
    EXPECT_GT(one.at("steps").get<int>(), 0);
    double sum = 0;
    for (const char* part : {"compute", "transfer", "launch_tax", "bulk_synchronous_tax"}) {
      const auto seconds = one.at(std::string(part) + "_seconds").get<double>();
      EXPECT_GE(seconds, 0) << part;
      sum += seconds;
    }
    EXPECT_GT(one.at("compute_seconds").get<double>(), 0);
    const auto whole = one.at("seconds").get<double>();
    EXPECT_NEAR(sum, whole, 0.03 * whole);
  }
}

TEST(Trace, OfWhatHasNoStepsSaysSoBesideItsEntries) {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_heddle({"trace", "-o", (folder.path() / "trace.json").string(), "bench", "sequence-attention", "--figure",
                  "10", "--gpus", "2", "--tokens", "16", "--repeats", "1"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("entries are in the trace. This report is of a model's steps"));
}

TEST(Trace, OfABenchHasATrackForEachStreamOfEachRankAndItsStepsAddUp) {
  const Traced traces = traced(
      {"bench", "linear-all-reduce", "--ranks", "2", "--m", "8", "--n", "64", "--k", "64", "--repeats", "3", "--json"});
  EXPECT_EQ(json::parse(traces.result.out).at("results").size(), 2u);  // what the command itself prints
  EXPECT_THAT(traces.result.err, HasSubstr("bulk-synchronous tax %"));
  expect_partition(traces.report, 2, 3);  // the pair, the fused operator, the GEMM alone
  // Only the pair hands partial sums over through memory.
  EXPECT_EQ(traces.report.at("steps").at(0).at("variant"), "bsp");
  EXPECT_GT(traces.report.at("steps").at(0).at("inter_kernel_tax_seconds").get<double>(), 0);
  EXPECT_EQ(traces.report.at("steps").at(1).at("variant"), "fused");
  EXPECT_EQ(traces.report.at("steps").at(1).at("inter_kernel_tax_seconds").get<double>(), 0);
  EXPECT_EQ(traces.report.at("steps").at(2).at("variant"), "gemm");
  EXPECT_THAT(traces.bars, AllOf(HasSubstr("bsp rank 0"), HasSubstr("fused rank 1"), HasSubstr("</svg>")));
  std::set<std::string> names;
  std::set<int> ranks;
  for (const json& event : traces.trace.at("traceEvents")) {
    names.insert(event.at("name").get<std::string>());
    ranks.insert(event.at("pid").get<int>());
    if (event.at("ph") == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0);
    }
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  for (const char* name : {"step", "task", "linear", "thread_name", "process_name"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_TRUE(names.contains("reduce: tile") || names.contains("sum: tile"))
      << "the fused operator's waits for its peer";
}

TEST(Trace, OfAGenerationPrintsTheSameTextAndItsStepsAddUp) {
  const std::vector<std::string> generate{
      "generate", "--model", demo_model().string(), "--prompt", "137 + 254 =", "--max-tokens", "4", "--device", "cpu"};
  const Traced traces = traced(generate);
  EXPECT_EQ(traces.result.out, run_heddle(generate).out);
  expect_partition(traces.report, 1, 1);
}

TEST(Trace, ExitsAsTheCommandDoesAndRefusesWhatIsNone) {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "trace.json").string();
  const ProgramResult bad =
      run_heddle({"trace", "-o", trace, "bench", "flash-decode", "--heads", "6", "--kv-heads", "4"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("--heads 6: is no multiple"));
  EXPECT_EQ(run_heddle({"trace", "-o", trace}).status, 2);
  EXPECT_EQ(run_heddle({"trace", "-o", trace, "trace", "doctor"}).status, 2);
  EXPECT_EQ(run_heddle({"trace", "-o", "/nowhere/trace.json", "doctor"}).status, 2 - 1);
}

}  // namespace
}  // namespace heddle
