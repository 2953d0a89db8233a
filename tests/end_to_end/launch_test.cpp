// heddle launch: the command that it builds, and what the launched ranks output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/sanitizer.h"
#include "end_to_end/program.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Launch, SaysWhichCommandItWouldRun) {
  const ProgramResult one = run_heddle({"launch", "-n", "3", "--dry-run", "--", "heddle", "doctor", "a b", "--", "-x"});
  if (one.err.find("openmpi-bin") != std::string::npos) GTEST_SKIP() << one.err;
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr(" -n 3 "));
  EXPECT_THAT(one.out, HasSubstr("-x NCCL_NVLS_ENABLE=0"));
  EXPECT_THAT(one.out, HasSubstr("heddle doctor 'a b' -- -x\n"));
  EXPECT_THAT(one.out, Not(HasSubstr("osc")));

  const ProgramResult several =
      run_heddle({"launch", "-n", "2", "--hosts", "a,b:4", "--interface", "eth0", "--dry-run", "--", "./program"});
  EXPECT_THAT(several.out, HasSubstr("--host a,b:4 "));
  EXPECT_THAT(several.out, HasSubstr("--mca osc pt2pt --mca btl tcp,self --mca btl_tcp_if_include eth0"));
  EXPECT_THAT(several.out, HasSubstr("launch --as-rank -- ./program\n"));
  const ProgramResult without = run_heddle({"launch", "-n", "2", "--no-recovery", "--dry-run", "--", "./program"});
  EXPECT_THAT(without.out, Not(HasSubstr("--as-rank")));
}

TEST(Launch, RefusesWhatNamesNoRun) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"launch"}, {"launch", "-n", "2"}, {"launch", "--", "true"}, {"launch", "-n", "0", "--", "true"}}) {
    EXPECT_EQ(run_heddle(arguments).status, 2);
  }
}

#if HEDDLE_MPI && !HEDDLE_ADDRESS_SANITIZER && !HEDDLE_THREAD_SANITIZER
TEST(Launch, GivesRankZeroTheInputAndReturnsTheRunsStatus) {
  const auto run = [](bool recovery) {
    std::vector<std::string> arguments{"launch", "-n", "3"};
    if (!recovery) arguments.emplace_back("--no-recovery");
    for (const char* word : {"--", "sh", "-c", "cat; exit $((OMPI_COMM_WORLD_RANK == 0 ? 7 : 0))"})
      arguments.emplace_back(word);
    return run_heddle(arguments, {.stdin_text = "through a pipe\n"});
  };
  auto with_recovery = std::async(std::launch::async, run, true);  // both wait for mpirun
  for (const ProgramResult& result : {run(false), with_recovery.get()}) {
    EXPECT_EQ(result.status, 7) << result.err;
    EXPECT_EQ(result.out, "through a pipe\n");
  }
}
#endif

}  // namespace
}  // namespace heddle
