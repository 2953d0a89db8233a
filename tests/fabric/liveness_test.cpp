#include "fabric/liveness.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <vector>

namespace heddle {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LivenessLimits kLimits{.beat = milliseconds(50), .deadline = seconds(4)};

ProcessIdentity gone_process() {
  ProcessIdentity process = own_process();
  ++process.start_time;  // an earlier process of the same number
  return process;
}

ProcessIdentity process_elsewhere() {
  ProcessIdentity process = own_process();
  ++process.machine;
  return process;
}

std::string own_name(int rank) {
  return name_of_rank(rank, getpid());
}

TEST(LossOf, AProcessThatHasEndedIsAFailureOnceItIsSilent) {
  RankStatus status{.process = gone_process(), .silence = milliseconds(99)};
  EXPECT_EQ(loss_of(2, status, kLimits).kind, Loss::none) << "it gives signs of life, whatever the system shows";
  status.silence = milliseconds(100);
  const Loss loss = loss_of(2, status, kLimits);
  EXPECT_EQ(loss.kind, Loss::ended);
  EXPECT_EQ(loss.text, own_name(2) + " has ended");
}

TEST(LossOf, SilenceBeyondTheDeadlineIsATimeout) {
  RankStatus status{.process = own_process(), .silence = seconds(4)};
  EXPECT_EQ(loss_of(1, status, kLimits).kind, Loss::none);
  status.silence = milliseconds(4100);
  EXPECT_EQ(loss_of(1, status, kLimits).kind, Loss::silent);
  EXPECT_EQ(loss_of(1, status, kLimits).text, own_name(1) + " has not moved for 4.1 s");
  status.process = process_elsewhere();
  EXPECT_EQ(loss_of(1, status, kLimits).text,
            "rank 1 has not moved for 4.1 s: it has ended, hangs or cannot be reached");
}

TEST(LossOf, AStoppedProcessIsSaidToBe) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) pause();
  kill(child, SIGSTOP);
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, WUNTRACED), child);
  const RankStatus status{.process = process_of_this_machine(child, start_time_of_process(child)),
                          .silence = seconds(5)};
  EXPECT_EQ(loss_of(3, status, kLimits).text, name_of_rank(3, child) + " has not moved for 5.0 s: it is stopped");
  kill(child, SIGKILL);
  waitpid(child, &how, 0);
  EXPECT_EQ(loss_of(3, status, kLimits).text, name_of_rank(3, child) + " has ended");
}

TEST(LossOf, WhoHasNotComeOrHasLeftIsNotLost) {
  for (const RankStatus::Stage stage : {RankStatus::absent, RankStatus::left})
    EXPECT_EQ(loss_of(0, {.stage = stage, .process = gone_process(), .silence = seconds(9)}, kLimits).kind, Loss::none);
  EXPECT_EQ(loss_of(0, {.stage = RankStatus::closing, .process = gone_process(), .silence = seconds(9)}, kLimits).kind,
            Loss::ended)
      << "the others still wait for it to close";
}

TEST(WhoIsLate, NamesTheLastOfAChainOfWaits) {
  const std::vector<RankStatus> ranks{{}, {.waits_for = 2, .tag = "barrier"}, {.waits_for = 3}, {}};
  EXPECT_EQ(who_is_late(0, 1, ranks, kLimits),
            "rank 1 waits for rank 2 (barrier); rank 2 waits for rank 3; rank 3 is late: it does not wait for anybody");
}

TEST(WhoIsLate, SaysWhenRanksWaitForEachOther) {
  EXPECT_EQ(who_is_late(0, 1, std::vector<RankStatus>{{}, {.waits_for = 0, .tag = "ping"}}, kLimits),
            "rank 1 waits for rank 0 (ping); they wait for each other");
  EXPECT_EQ(who_is_late(0, 1, std::vector<RankStatus>{{}, {.waits_for = 2}, {.waits_for = 1}}, kLimits),
            "rank 1 waits for rank 2; rank 2 waits for rank 1; they wait for each other");
}

TEST(WhoIsLate, NamesThoseWhoHaveNotComeOrHaveClosed) {
  const std::vector<RankStatus> ranks{
      {}, {.stage = RankStatus::absent}, {.stage = RankStatus::closing}, {.stage = RankStatus::left}};
  EXPECT_EQ(who_is_late(0, 1, ranks, kLimits), "rank 1 has not started");
  EXPECT_EQ(who_is_late(0, 2, ranks, kLimits), "rank 2 has closed its fabric");
  EXPECT_EQ(who_is_late(0, 3, ranks, kLimits), "rank 3 has closed its fabric");
}

TEST(WhoIsLate, BlamesLostRanksBeforeThoseWhoWait) {
  const std::vector<RankStatus> ranks{{},
                                      {.process = own_process(), .waits_for = 2},
                                      {.process = own_process(), .waits_for = 3},
                                      {.process = gone_process()},
                                      {.process = own_process(), .silence = milliseconds(1100)}};
  EXPECT_EQ(who_is_late(0, 1, ranks, kLimits), own_name(3) + " has ended; " + own_name(4) + " has not moved for 1.1 s");
}

TEST(SilentMachines, AreThoseOfWhichNoRankIsHeard) {
  const std::vector<MachineRanks> machines{{"10.0.0.1", {0, 1}}, {"10.0.0.2", {2, 3}}, {"10.0.0.3", {4}}};
  const RankStatus silent{.silence = milliseconds(1100)}, heard{};
  std::vector<RankStatus> ranks{{}, heard, silent, silent, silent};
  EXPECT_EQ(silent_machines(0, machines, ranks, kLimits),
            "machine 10.0.0.2 is silent: ranks 2, 3 are on it; machine 10.0.0.3 is silent: rank 4 is on it");
  ranks[3] = heard;
  ranks[4] = {.process = gone_process(), .silence = milliseconds(1100)};  // the process has ended, the machine has not
  EXPECT_EQ(silent_machines(0, machines, ranks, kLimits), "");
  ranks = {{}, silent, silent, heard, {.stage = RankStatus::left, .silence = milliseconds(1100)}};
  EXPECT_EQ(silent_machines(0, machines, ranks, kLimits), "");  // the own one is not
  EXPECT_EQ(silent_machines(0, {}, ranks, kLimits), "");
}

// What another process has written may be anything.
TEST(WhoIsLate, EndsWhateverRanksSayTheyWaitFor) {
  EXPECT_EQ(who_is_late(0, 1, std::vector<RankStatus>{{}, {.waits_for = 4711}}, kLimits), "rank 1 waits for rank 4711");
  EXPECT_EQ(who_is_late(0, -1, std::vector<RankStatus>(2), kLimits), "");
}

TEST(RanksThat, AreNamedUpToSixteen) {
  EXPECT_EQ(not_started({}), "");
  EXPECT_EQ(not_started(std::array{2}), "rank 2 has not started");
  EXPECT_EQ(not_started(std::array{2, 3}), "ranks 2, 3 have not started");
  std::vector<int> many(17);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(not_started(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... have not started");
}

}  // namespace
}  // namespace heddle
