// heddle plan: what a user sees of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "end_to_end/program.h"

namespace heddle {
namespace {

using testing::HasSubstr;

TEST(Plan, PrintsTheVolumesOfFluxAndOnePick) {
  const ProgramResult result = run_heddle({"plan", "attention", "--machines", "4", "--gpus", "8", "--heads", "24",
                                           "--head-dim", "128", "--tokens", "37376", "--batch", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto plan = nlohmann::json::parse(result.out);
  const auto& strategies = plan["strategies"];
  EXPECT_EQ(strategies["usp"]["inter_machine_elements"], 172228608);   // 2 (N - 1) BLHD / N
  EXPECT_EQ(strategies["torus"]["inter_machine_elements"], 86114304);  // 4 (N - 1) / N BLHD / N
  EXPECT_EQ(strategies["torus"]["counted_elements"], 86114304);
  EXPECT_EQ(strategies["usp"]["counted_elements"], 172228608);
  EXPECT_THAT(strategies["ulysses"]["reason"], HasSubstr("32 does not divide 24 heads"));
  EXPECT_TRUE(strategies.contains("ring") && strategies.contains("tas"));
  EXPECT_TRUE(strategies.contains(plan["pick"]));
}

TEST(Plan, PrintsATableAndTakesADegree) {
  const ProgramResult result = run_heddle({"plan", "attention", "--machines", "2", "--gpus", "2", "--heads", "4",
                                           "--head-dim", "64", "--tokens", "4097", "--ulysses", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::AllOf(HasSubstr("torus"), HasSubstr("2 x 2"), HasSubstr("pick")));
}

TEST(Plan, SaysByWhatACountDiffersAndWhichDegreeIsFastest) {
  const std::vector<std::string> flux{"plan",    "attention", "--machines", "3",   "--gpus",   "8",
                                      "--heads", "24",        "--head-dim", "128", "--tokens", "37376"};
  const ProgramResult table = run_heddle(flux);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, testing::AllOf(HasSubstr("by the gcd rule"), HasSubstr("fastest degree, pick"),
                                        HasSubstr("rates: the paper's")));
  std::vector<std::string> words = flux;
  words.emplace_back("--json");
  const auto plan = nlohmann::json::parse(run_heddle(words).out);
  EXPECT_EQ(plan["strategies"]["one_sided"]["ulysses"], 24);
  EXPECT_EQ(plan["strategies"]["one_sided"]["fastest_degree"]["ulysses"], 6);
  EXPECT_EQ(plan["picked"]["ulysses"], 6);

  words.insert(words.end(), {"--ulysses", "4"});
  const auto three = nlohmann::json::parse(run_heddle(words).out);
  EXPECT_THAT(three["strategies"]["tas"]["counted_differs"], HasSubstr("rings of 6 ranks straddle machines of 8"));
  EXPECT_EQ(three["strategies"]["torus"]["torus"], 4);
}

TEST(Plan, DividesABatchIntoHalves) {
  const ProgramResult result = run_heddle({"plan", "attention", "--machines", "4", "--gpus", "8", "--heads", "24",
                                           "--head-dim", "48", "--tokens", "37376", "--batch", "2", "--cfg", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto plan = nlohmann::json::parse(result.out);
  EXPECT_EQ(plan["halves"], 2);
  EXPECT_EQ(plan["strategies"]["ring"]["ring"], 16);  // of 32 ranks
  EXPECT_THAT(plan["notes"].dump(), testing::AllOf(HasSubstr("half of the machines"), HasSubstr("heads of 48")));
}

TEST(Plan, RejectsWhatFitsNoStrategy) {
  const std::vector<std::string> flux{"plan",    "attention", "--machines", "4",   "--gpus",   "8",
                                      "--heads", "24",        "--head-dim", "128", "--tokens", "37376"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = flux;
    all.insert(all.end(), more.begin(), more.end());
    return run_heddle(all);
  };
  const ProgramResult degree = with({"--ulysses", "5"});
  EXPECT_EQ(degree.status, 2);
  EXPECT_THAT(degree.err, HasSubstr("take a degree of 1, 2, 4, 8"));
  const auto on = [&](const char* machines, const char* gpus) {
    std::vector<std::string> all = flux;
    all[3] = machines;
    all[5] = gpus;
    return run_heddle(all);
  };
  EXPECT_EQ(on("3", "8,8,8").status, 0);
  EXPECT_EQ(on("3", "8,4,8").status, 2);
  EXPECT_THAT(on("3", "8,4,8").err,
              testing::AllOf(HasSubstr("machines of 8, 4, 8 ranks"),
                             HasSubstr("on 3 x 4 usp, tas, torus and one_sided take a degree of")));
  EXPECT_THAT(on("5", "1073741824,1073741824,1073741824,1073741824,1").err, HasSubstr("are 4294967297 ranks"));
  EXPECT_THAT(on("2", "8,8,8").err, HasSubstr("--gpus names 3 machines, --machines 2"));
  EXPECT_EQ(with({"--batch", "0"}).status, 2);
  EXPECT_THAT(with({"--cfg"}).err, HasSubstr("2 halves of an even batch"));
  EXPECT_THAT(run_heddle({"plan", "attention", "--heads", "4", "--head-dim", "300", "--tokens", "64"}).err,
              HasSubstr("at most 256"));
  EXPECT_THAT(with({"--rates", "/nowhere"}).err, HasSubstr("/nowhere"));
  EXPECT_EQ(with({"--batch", "2000000000"}).status, 2);
  EXPECT_EQ(run_heddle({"plan"}).status, 2);
  EXPECT_EQ(run_heddle({"plan", "attention", "--heads", "24"}).status, 2);
}

}  // namespace
}  // namespace heddle
