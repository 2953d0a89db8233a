// The cases on `shm`: ranks as threads, and as processes that run heddle_conformance.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "conformance/run_cases.h"
#include "fabric/rank_processes.h"
#include "fabric/shm/threads.h"

namespace heddle::conformance {
namespace {

std::vector<int> large_worlds() {
  if (kSanitizer) return {8};  // more take long on few cores, and show a sanitizer nothing new
  return {8, 16};
}

void run_on_threads(int size, const Course& course) {
  ShmThreads world(size, {.heap_bytes = heap_bytes_for(course.options)});
  run_team(size, [&](TeamMember& member) {
    const std::unique_ptr<Fabric> fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    run_cases(*fabric, stream, course, [](std::string_view, std::string_view) {});
  });
}

class ShmThreadsConform : public testing::TestWithParam<int> {};

TEST_P(ShmThreadsConform, ToEveryCase) {
  // As many rounds as the usual machine's few cores allow so many ranks.
  const int rounds = GetParam() <= 2 ? 400 : 100;
  EXPECT_NO_THROW(run_on_threads(GetParam(), {.options = {.rounds = rounds}, .soak_iterations = 20}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmThreadsConform, testing::Values(1, 2, 3, 4));
INSTANTIATE_TEST_SUITE_P(LargeWorlds, ShmThreadsConform, testing::ValuesIn(large_worlds()));

class ShmProcessesConform : public testing::TestWithParam<int> {};

TEST_P(ShmProcessesConform, ToEveryCase) {
  RankProcesses ranks(GetParam());
  std::vector<pid_t> processes;
  for (int rank = 0; rank < GetParam(); ++rank)
    processes.push_back(ranks.start(rank, {CONFORMANCE, "--fabric", "shm", "--rounds", "100", "--soak", "20"}));
  for (const pid_t process : processes) {
    const RankProcesses::End end = ranks.end(process);
    EXPECT_EQ(end.code, 0) << end.error;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmProcessesConform, testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(LargeWorlds, ShmProcessesConform, testing::ValuesIn(large_worlds()));

}  // namespace
}  // namespace heddle::conformance
