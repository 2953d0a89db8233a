// heddle trace: what it writes, and that it changes nothing else of the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/sanitizer.h"
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

// `before`: words in front of "heddle trace", which follows them as a program of its own.
Traced traced(std::vector<std::string> command, const std::vector<std::string>& before = {}) {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "trace.json").string(), report = (folder.path() / "report.json").string(),
                    bars = (folder.path() / "bars.svg").string();
  command.insert(command.begin(), {"trace", "-o", trace, "--report", report, "--bars", bars});
  command.insert(command.begin(), before.begin(), before.end());
  Traced out{run_heddle(command), {}, {}, {}};
  EXPECT_EQ(out.result.status, 0) << out.result.err;
  out.trace = json::parse(read_file(trace, kLongestTrace), nullptr, false);
  out.report = json::parse(read_file(report, kLongestTrace), nullptr, false);
  out.bars = read_file(bars, kLongestTrace);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3) << "files that nobody asked for";
  return out;
}

// A slice, in nanoseconds.
struct Slice {
  std::string category, name;
  std::int64_t begin, end;
};

// Of each rank, of each of its streams, in the order of begins, of two the longer one first.
std::map<std::pair<int, int>, std::vector<Slice>> slices_of(const json& trace) {
  std::map<std::pair<int, int>, std::vector<Slice>> streams;
  const auto nanoseconds = [](const json& microseconds) { return std::llround(microseconds.get<double>() * 1000); };
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const std::int64_t begin = nanoseconds(event.at("ts"));
    streams[{event.at("pid"), event.at("tid")}].push_back(
        {event.at("cat"), event.at("name"), begin, begin + nanoseconds(event.at("dur"))});
  }
  for (auto& [stream, slices] : streams)
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
      return a.begin < b.begin || (a.begin == b.begin && a.end > b.end);
    });
  return streams;
}

// Of two slices of a stream one lies inside the other, or they have nothing in common.
void expect_nesting(const json& trace) {
  for (const auto& [stream, slices] : slices_of(trace)) {
    std::vector<Slice> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
      if (!open.empty()) {
        ASSERT_LE(slice.end, open.back().end)
            << slice.name << " begins in " << open.back().name << " and ends behind it";
      }
      open.push_back(slice);
    }
  }
}

// Compares the report's parts with what the trace shows of rank's steps.
void expect_parts_of_slices(const Traced& traces, int rank) {
  double in_steps = 0, in_tasks = 0, in_waits = 0;
  for (const auto& [stream, slices] : slices_of(traces.trace)) {
    if (stream.first != rank) continue;
    std::int64_t step_begin = 0, step_end = 0;
    for (const Slice& slice : slices) {
      if (slice.name == "step") {
        step_begin = slice.begin;
        step_end = slice.end;
        in_steps += 1e-9 * static_cast<double>(step_end - step_begin);
      }
      const double common =
          1e-9 * static_cast<double>(std::min(slice.end, step_end) - std::max(slice.begin, step_begin));
      if (common > 0 && slice.category == "task") in_tasks += common;
      if (common > 0 && slice.category == "wait") in_waits += common;
    }
  }
  double seconds = 0, launch = 0, synchronous = 0, compute = 0, transfer = 0;
  for (const json& one : traces.report.at("steps")) {
    if (one.at("rank") != rank) continue;
    seconds += one.at("seconds").get<double>();
    launch += one.at("launch_tax_seconds").get<double>();
    synchronous += one.at("bulk_synchronous_tax_seconds").get<double>();
    compute += one.at("compute_seconds").get<double>();
    transfer += one.at("transfer_seconds").get<double>();
  }
  const double bound = 1e-6 * in_steps + 1e-8;
  EXPECT_NEAR(seconds, in_steps, bound);
  EXPECT_NEAR(launch, in_steps - in_tasks, bound);
  EXPECT_NEAR(synchronous, in_waits, bound);
  EXPECT_NEAR(compute + transfer, in_tasks - in_waits, bound);
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
  expect_nesting(traces.trace);
  for (const int rank : {0, 1}) expect_parts_of_slices(traces, rank);
  // The pair's all-reduce is a transfer, and the fused operator's sends are; the GEMM alone has none.
  EXPECT_GT(traces.report.at("steps").at(0).at("transfer_seconds").get<double>(), 0);
  EXPECT_GT(traces.report.at("steps").at(1).at("transfer_seconds").get<double>(), 0);
  EXPECT_EQ(traces.report.at("steps").at(2).at("transfer_seconds").get<double>(), 0);
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
  expect_nesting(traces.trace);
}

TEST(Trace, OfAModelOnTwoRanksNestsAndShowsTransfers) {
  const Traced traces = traced({"generate", "--model", demo_model().string(), "--prompt", "137 + 254 =", "--max-tokens",
                                "4", "--device", "cpu", "--tp", "2"});
  expect_partition(traces.report, 2, 1);
  expect_nesting(traces.trace);
  for (const int rank : {0, 1})
    EXPECT_GT(traces.report.at("steps").at(static_cast<std::size_t>(rank)).at("transfer_seconds").get<double>(), 0);
}

#if HEDDLE_MPI && !HEDDLE_ADDRESS_SANITIZER && !HEDDLE_THREAD_SANITIZER
TEST(Trace, OfProcessesIsOneTraceOfAllRanks) {
  const Traced traces = traced({"bench", "linear-all-reduce", "--m", "8", "--n", "64", "--k", "64", "--repeats", "3"},
                               {"launch", "-n", "2", "--", HEDDLE_PROGRAM});
  expect_partition(traces.report, 2, 3);
  expect_nesting(traces.trace);
  for (const int rank : {0, 1}) expect_parts_of_slices(traces, rank);
  EXPECT_THAT(traces.bars, AllOf(HasSubstr("bsp rank 0"), HasSubstr("fused rank 1")));
}
#endif

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
