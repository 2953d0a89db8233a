#include "fabric/shm/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/atomics.h"
#include "fabric/process_state.h"
#include "fabric/rank_processes.h"
#include "fabric/registry.h"
#include "fabric/shm/control.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/monitor.h"
#include "fabric/shm/shared_object.h"

namespace heddle {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr const char* kHeap = "65536";

std::vector<std::string> rank_command(const std::string& mode, const std::string& heap_bytes,
                                      const std::string& deadline_ms) {
  return {SHM_RANK, mode, heap_bytes, deadline_ms};
}

std::string object_name(const RankProcesses& ranks) {
  return fmt::format("/heddle-{}-{}", getuid(), ranks.job_key());
}

void expect_nothing_left(const RankProcesses& ranks) {
  EXPECT_FALSE(std::filesystem::exists("/dev/shm" + object_name(ranks)));
}

std::string named(int rank, pid_t process) {
  return fmt::format("rank {} (process {})", rank, process);
}

// Waits until that rank stands in the control block as having joined; false if that takes for ever.
bool has_joined(const RankProcesses& ranks, int rank) {
  for (int tries = 0; tries < 10000; ++tries) {
    if (std::optional<SharedObject> object = SharedObject::open(object_name(ranks), sizeof(ShmControl))) {
      object->keep_name();
      const Mapping pages = Mapping::of_file(object->file(), sizeof(ShmControl), "the control block");
      const auto& control = *reinterpret_cast<const ShmControl*>(pages.data());
      if (atomic_load(&control.ranks[rank].state) == RankSlot::joined) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Starts four ranks that go on for ever, does something to rank 2 when they are at it, and says how the others ended.
std::vector<RankProcesses::End> ends_without_rank_2(const std::string& mode, const std::string& deadline_ms, int signal,
                                                    pid_t& lost) {
  RankProcesses ranks(4);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 4; ++rank) processes.push_back(ranks.start(rank, rank_command(mode, kHeap, deadline_ms)));
  for (const pid_t process : processes) ranks.wait_for_line(process);
  expect_nothing_left(ranks);  // already: all have come
  lost = processes[2];
  kill(lost, signal);
  std::vector<RankProcesses::End> ends;
  for (const int rank : {0, 1, 3}) ends.push_back(ranks.end(processes[static_cast<std::size_t>(rank)]));
  kill(lost, SIGKILL);
  EXPECT_EQ(ranks.end(lost).code, 128 + SIGKILL);
  expect_nothing_left(ranks);
  return ends;
}

TEST(ShmProcesses, AKilledRankIsNamedByEveryOtherLongBeforeTheDeadline) {
  for (const std::string mode : {"barriers", "waits"}) {
    pid_t lost = 0;
    // The ranks kill themselves after 60 s, so a rank that waited for this deadline would not end with an error.
    for (const RankProcesses::End& end : ends_without_rank_2(mode, "600000", SIGKILL, lost)) {
      EXPECT_EQ(end.code, 1);
      EXPECT_EQ(end.error, named(2, lost) + " has ended");
    }
  }
}

TEST(ShmProcesses, AStoppedRankIsNamedByEveryOther) {
  const auto expect_named = [](const std::string& mode) {
    pid_t lost = 0;
    for (const RankProcesses::End& end : ends_without_rank_2(mode, "2000", SIGSTOP, lost)) {
      EXPECT_EQ(end.code, 1);
      EXPECT_THAT(end.error, HasSubstr(named(2, lost) + " has not moved for "));
    }
  };
  std::thread barriers(expect_named, "barriers");  // both wait for the deadline
  expect_named("waits");
  barriers.join();
}

TEST(ShmProcesses, WhatRank0AloneFindsOutIsToldToAll) {
  RankProcesses ranks(2);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 2; ++rank)
    processes.push_back(ranks.start(rank, rank_command("barriers", "100000000000000", "20000")));
  for (const pid_t process : processes) {
    const RankProcesses::End end = ranks.end(process);
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.error, HasSubstr("2 heaps of 100000000000000 bytes do not fit into the "));
  }
  expect_nothing_left(ranks);
}

TEST(ShmProcesses, ARankThatThrowsEndsTheOthers) {
  RankProcesses ranks(3);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(ranks.start(rank, rank_command("throw", kHeap, "600000")));
  for (const std::size_t rank : {0, 2}) {
    const RankProcesses::End end = ranks.end(processes[rank]);
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.error, AnyOf(named(1, processes[1]) + " has ended with an error of its own",
                                 named(1, processes[1]) + " has ended"));
  }
  EXPECT_EQ(ranks.end(processes[1]).error, "an error of rank 1");
}

TEST(ShmProcesses, ARankThatNeverStartsIsNamed) {
  RankProcesses ranks(4);
  std::vector<pid_t> processes;
  for (const int rank : {0, 1, 3}) processes.push_back(ranks.start(rank, rank_command("once", kHeap, "3000")));
  for (const pid_t process : processes) {
    const RankProcesses::End end = ranks.end(process);
    EXPECT_EQ(end.code, 1);
    EXPECT_EQ(end.error, "rank 2 has not started within 3.0 s");
  }
  expect_nothing_left(ranks);
}

TEST(ShmProcesses, RankZeroThatNeverStartsIsNamed) {
  RankProcesses ranks(2);
  const RankProcesses::End end = ranks.end(ranks.start(1, rank_command("once", kHeap, "300")));
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.error, HasSubstr("rank 0 has not started"));
}

TEST(ShmProcesses, ARankThatIsKilledOnItsWayInIsNamed) {
  RankProcesses ranks(3);
  const pid_t zero = ranks.start(0, rank_command("once", kHeap, "600000"));
  const pid_t one = ranks.start(1, rank_command("once", kHeap, "600000"));
  ASSERT_TRUE(has_joined(ranks, 1));
  kill(one, SIGKILL);
  ranks.end(one);
  EXPECT_EQ(ranks.end(zero).error, named(1, one) + " has ended");
  expect_nothing_left(ranks);
}

TEST(ShmProcesses, DifferencesAreNamedOnEveryRank) {
  RankProcesses heaps(2);
  const pid_t zero = heaps.start(0, rank_command("once", "65536", "20000"));
  const pid_t one = heaps.start(1, rank_command("once", "131072", "20000"));
  for (const pid_t process : {zero, one})
    EXPECT_THAT(heaps.end(process).error, HasSubstr("rank 1 asks for a heap of 131072 bytes, rank 0 for 65536"));
  expect_nothing_left(heaps);

  RankProcesses worlds(3);
  const pid_t first = worlds.start(0, rank_command("once", kHeap, "20000"));
  const pid_t other = worlds.start(1, rank_command("once", kHeap, "20000"), 2);
  for (const pid_t process : {first, other})
    EXPECT_THAT(worlds.end(process).error, HasSubstr("rank 1 is of a world of 2, rank 0 of one of 3"));
  expect_nothing_left(worlds);

  RankProcesses twins(3);
  const pid_t founder = twins.start(0, rank_command("once", kHeap, "20000"));
  const pid_t twin = twins.start(1, rank_command("once", kHeap, "20000"));
  const pid_t second_twin = twins.start(1, rank_command("once", kHeap, "20000"));
  for (const pid_t process : {founder, twin, second_twin})
    EXPECT_THAT(twins.end(process).error, HasSubstr("two processes say that they are rank 1"));
  expect_nothing_left(twins);
}

TEST(ShmProcesses, WhatAKilledRunLeftBehindIsReplaced) {
  RankProcesses ranks(2);
  const pid_t killed = ranks.start(0, rank_command("once", kHeap, "600000"));
  ASSERT_TRUE(has_joined(ranks, 0));
  kill(killed, SIGKILL);
  ranks.end(killed);
  const pid_t one = ranks.start(1, rank_command("twice", kHeap, "20000"));  // sees the old object first
  const pid_t zero = ranks.start(0, rank_command("twice", kHeap, "20000"));
  for (const pid_t process : {zero, one}) {
    const RankProcesses::End end = ranks.end(process);
    EXPECT_EQ(end.code, 0) << end.error;
    EXPECT_EQ(end.output, "ready\nready\n");
  }
  expect_nothing_left(ranks);
}

TEST(ShmProcesses, HeapsThatDoNotFitIntoMemoryAreRefused) {
  RankProcesses ranks(1);
  const RankProcesses::End end = ranks.end(ranks.start(0, rank_command("once", "100000000000000", "1000")));
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.error, HasSubstr("1 heaps of 100000000000000 bytes do not fit into the "));
  expect_nothing_left(ranks);
}

TEST(ShmProcesses, RanksOfOtherMachinesAreRefused) {
  EXPECT_THROW(join_shm_processes({.rank = 0, .world_size = 4, .num_local_ranks = 2, .job_key = "x"}), InputError);
}

TEST(Monitor, KnowsWhenAProcessStartedAndThatAZombieHasEnded) {
  EXPECT_NE(start_time_of_process(getpid()), 0U);
  EXPECT_EQ(start_time_of_process(getpid()), start_time_of_process(getpid()));
  EXPECT_EQ(start_time_of_process(1 << 30), 0U);
  RankProcesses ranks(1);
  const pid_t child = ranks.start(0, {"/bin/sh", "-c", "echo; exec sleep 60"});
  ranks.wait_for_line(child);
  kill(child, SIGKILL);
  for (int tries = 0; tries < 10000 && start_time_of_process(child) != 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(start_time_of_process(child), 0U) << "dead, and not yet waited for";
  EXPECT_EQ(ranks.end(child).code, 128 + SIGKILL);
}

TEST(Registry, AnUnknownNameListsWhatThereIs) {
  EXPECT_THAT(fabric_names(), testing::Contains("shm"));
  try {
    open_fabric("infiniband");
    FAIL() << "opened";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no fabric \"infiniband\" in this build; it has shm"));
  }
}

}  // namespace
}  // namespace heddle
