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
  EXPECT_THAT(degree.err, HasSubstr("take 1, 2, 4, 8"));
  EXPECT_EQ(with({"--batch", "0"}).status, 2);
  EXPECT_EQ(with({"--batch", "2000000000"}).status, 2);
  EXPECT_EQ(run_heddle({"plan"}).status, 2);
  EXPECT_EQ(run_heddle({"plan", "attention", "--heads", "24"}).status, 2);
}

}  // namespace
}  // namespace heddle
