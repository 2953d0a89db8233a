// What the fabric nvlink decides and agrees on without a GPU.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "fabric/nvlink/closing.h"
#include "fabric/nvlink/host_exchange.h"
#include "fabric/nvlink/nccl_version.h"
#include "fabric/nvlink/nvlink_kernels.h"
#include "fabric/nvlink/team_table.h"
#include "fabric/nvlink/transfer_path.h"
#include "fabric/nvlink/within_deadline.h"
#include "fabric/shm/processes.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TransferPath, IsTheCopyEngineFromTheLimitOn) {
  constexpr std::size_t kLimit = 4096;
  struct Row {
    std::size_t bytes;
    std::uintptr_t destination, source;
    TransferPath path;
  };
  constexpr std::array<Row, 8> kRows = {{{0, 0, 0, TransferPath::none},
                                         {1, 0, 0, TransferPath::kernel},
                                         {4095, 16, 32, TransferPath::kernel},
                                         {4096, 16, 32, TransferPath::copy_engine},
                                         {4095, 5, 1, TransferPath::kernel},        // off a word by the same: words
                                         {255, 1, 0, TransferPath::kernel},         // few single bytes
                                         {256, 1, 0, TransferPath::copy_engine},    // many
                                         {256, 7, 1, TransferPath::copy_engine}}};  // 6 apart: half words are bytes too
  for (const Row& row : kRows)
    EXPECT_EQ(transfer_path(row.bytes, row.destination, row.source, kLimit), row.path)
        << row.bytes << " bytes from " << row.source << " to " << row.destination;
}

TEST(TransferPath, OfAWordIsAKernelWhateverTheLimit) {
  for (const std::size_t limit : {1, 8, 64}) EXPECT_EQ(transfer_path(8, 16, 17, limit), TransferPath::kernel);
}

TEST(TransferPath, TakesMoreBlocksForMoreBytes) {
  EXPECT_EQ(copy_blocks(1), 1);
  EXPECT_EQ(copy_blocks(32 << 10), 1);
  EXPECT_EQ(copy_blocks((32 << 10) + 1), 2);
  EXPECT_EQ(copy_blocks(std::size_t{1} << 40), 8);
}

TEST(NcclVersion, IsReadFromItsCode) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(21003), "2.10.3");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");  // the older form
}

TEST(NcclVersion, AMismatchSaysWhatWasBuiltWithWhatWasFoundAndWhatToDo) {
  EXPECT_THAT(nccl_mismatch(22809, 22809, "/x"), IsEmpty());
  EXPECT_THAT(nccl_mismatch(22809, 22803, "/usr/lib/libnccl.so.2"),
              AllOf(HasSubstr("built with NCCL 2.28.9, found 2.28.3 at /usr/lib/libnccl.so.2"),
                    HasSubstr("first in LD_LIBRARY_PATH")));
  EXPECT_THAT(nccl_mismatch(22809, 22907, "/x"), HasSubstr("found 2.29.7"));  // newer ones do not fit either
}

TEST(Probe, DiffersForEveryPairOfRanks) {
  std::set<std::uint64_t> words;
  for (int writer = 0; writer < kMaxPeers; ++writer)
    for (int reader = 0; reader < kMaxPeers; ++reader) words.insert(nvlink::probe_word(1, writer, reader));
  EXPECT_EQ(words.size(), std::size_t{kMaxPeers} * kMaxPeers);
}

FabricOptions small_host(int world_size) {
  return {.heap_bytes = HostExchange::heap_bytes(world_size) + TeamTable::kHeapBytes,
          .deadline = std::chrono::seconds(20)};
}

// Overlapping teams, interleaved, with ranks at different speeds: a value of another round or team would show.
TEST(HostExchange, GivesEveryRankWhatEachOfItsTeamGaveInThisRound) {
  ShmThreads world(4, small_host(4));
  run_team(4, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    const int rank = member.rank();
    const auto word = [](int of, int round) { return std::array<int, 60>{of, round}; };
    for (int round = 0; round < 50; ++round) {
      const auto all = exchange.gather(exchange.world(), word(rank, round), "all");
      for (int peer = 0; peer < 4; ++peer) EXPECT_EQ(all[static_cast<std::size_t>(peer)], word(peer, round));
      const Ranks pair = rank < 2 ? Ranks{1, 0} : Ranks{2, 3};
      for (int again = 0; again < rank / 2 + 1; ++again) {
        const auto both = exchange.gather(pair, word(rank, again), "pair");
        EXPECT_THAT(both, ElementsAre(word(pair[0], again), word(pair[1], again)));
      }
    }
  });
}

TEST(HostExchange, NamesTheRankThatDoesNotCome) {
  ShmThreads world(2, {.heap_bytes = HostExchange::heap_bytes(2), .deadline = std::chrono::milliseconds(500)});
  std::string said;
  run_team(2, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    if (member.rank() == 1) return member.barrier();
    try {
      exchange.meet(exchange.world(), "handles");
    } catch (const Timeout& timeout) {
      said = timeout.what();
    }
    member.barrier();
  });
  EXPECT_THAT(said, AllOf(HasSubstr("rank 0 waited for rank 1"), HasSubstr("handles")));
}

TEST(HostExchange, RanksPartTogetherOrAtTheLimit) {
  ShmThreads world(2, small_host(2));
  std::atomic<int> parted{0};
  run_team(2, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    if (member.rank() == 0) {
      EXPECT_FALSE(exchange.part(std::chrono::milliseconds(1)));  // nobody else comes yet
    }
    member.barrier();
    if (member.rank() == 1) {
      EXPECT_TRUE(exchange.part(std::chrono::minutes(1)));  // at once: both have called
    }
    member.barrier();
    EXPECT_TRUE(exchange.part(std::chrono::minutes(1)));
    ++parted;
  });
  EXPECT_EQ(parted, 2);
}

TEST(HostExchange, RanksPartAfterOneHasEndedWithAnError) {
  ShmThreads world(3, small_host(3));
  run_team(3, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    member.barrier();  // the others have made theirs, for which they need rank 1
    if (member.rank() == 1) {
      exchange.abandon();
    } else {
      try {
        exchange.meet(exchange.world(), "without rank 1");
        ADD_FAILURE() << "they met";
      } catch (const Failure& failure) {
        EXPECT_THAT(failure.what(), HasSubstr("rank 1 has ended with an error of its own"));
      }
    }
    EXPECT_TRUE(exchange.part(std::chrono::minutes(1)));
    member.barrier();
  });
}

// A rank that was killed has let go of everything: nobody waits for it until the limit.
TEST(HostExchange, ARankWhoseProcessIsGoneHasParted) {
  const auto launch = [key = fmt::format("nvlink-host-test-{}", ::getpid())](int rank) {
    return Launch{.rank = rank, .world_size = 2, .local_rank = rank, .num_local_ranks = 2, .job_key = key};
  };
  const pid_t child = ::fork();
  if (child == 0) {
    const auto fabric = join_shm_processes(launch(1), small_host(2));
    const HostExchange exchange(*fabric);
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  const auto fabric = join_shm_processes(launch(0), small_host(2));
  HostExchange exchange(*fabric);
  EXPECT_TRUE(exchange.part(std::chrono::minutes(10)));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// What each rank does, and what it finds of the others then.
struct Heaps {
  std::atomic<int> closing{0}, let_go{0}, freed{0};
};

void pause_of(int rank) {
  std::this_thread::sleep_for(std::chrono::milliseconds(15 * rank));
}

TEST(Closing, NobodyFreesBeforeAllHaveLetGoNorGoesOnBeforeAllHaveFreed) {
  constexpr int kClosing = 3;
  ShmThreads world(kClosing, small_host(kClosing));
  Heaps heaps;
  run_team(kClosing, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    pause_of(member.rank());
    ++heaps.closing;
    const auto idle = [&] {
      EXPECT_EQ(heaps.closing, kClosing) << "a GPU is waited for while a rank may still need it";
    };
    const auto let_go = [&] {
      pause_of(member.rank());
      ++heaps.let_go;
    };
    const auto free = [&] {
      EXPECT_EQ(heaps.let_go, kClosing) << "freed while others have it mapped";
      pause_of(member.rank());
      ++heaps.freed;
    };
    close_together(exchange, {idle, let_go, free});
    EXPECT_EQ(heaps.freed, kClosing) << "a rank goes on while another's cudaFree may wait for its kernels";
    member.barrier();
  });
}

// Rank 1 finds that they have met in "heaps let go" too late: it ends as after a failure while rank 0 has freed.
TEST(Closing, ARankThatHasFreedIsNotWaitedForWhereTheMeetingBeforeFailedForAnother) {
  ShmThreads world(2, small_host(2));
  Heaps heaps;
  run_team(2, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    const auto nothing = [] {};
    const auto free = [&] { ++heaps.freed; };
    if (member.rank() == 0) {
      EXPECT_THROW(close_together(exchange, {nothing, nothing, free}), Failure);
    } else {
      exchange.meet(exchange.world(), "closing");
      exchange.meet(exchange.world(), "heaps let go");
      while (heaps.freed == 0) std::this_thread::yield();
      exchange.abandon();
      EXPECT_TRUE(close_after_failure(exchange, {nothing, nothing, free}, std::chrono::seconds(5)));
    }
    member.barrier();
  });
  EXPECT_EQ(heaps.freed, 2);
}

TEST(Closing, AfterAFailureMemoryIsFreedWhenTheLastHasLetGo) {
  constexpr int kClosing = 3;
  ShmThreads world(kClosing, small_host(kClosing));
  Heaps heaps;
  run_team(kClosing, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    member.barrier();  // the others have made theirs, for which they need rank 0
    if (member.rank() == 0) exchange.abandon();
    const auto idle = [&] { pause_of(member.rank()); };
    const auto let_go = [&] { ++heaps.let_go; };
    const auto free = [&] {
      EXPECT_EQ(heaps.let_go, kClosing) << "freed while others have it mapped";
      ++heaps.freed;
    };
    EXPECT_TRUE(close_after_failure(exchange, {idle, let_go, free}, std::chrono::minutes(1)));
    member.barrier();
  });
  EXPECT_EQ(heaps.freed, kClosing);
}

TEST(Closing, AfterAFailureMemoryStaysWhereARankDoesNotLetGo) {
  ShmThreads world(2, small_host(2));
  run_team(2, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    HostExchange exchange(*fabric);
    const auto nothing = [] {};
    const auto free = [] { ADD_FAILURE() << "freed what rank 1 still uses"; };
    if (member.rank() == 0) {
      EXPECT_FALSE(close_after_failure(exchange, {nothing, nothing, free}, std::chrono::milliseconds(30)));
    }
    member.barrier();
    if (member.rank() == 1) {  // its GPU does not become idle: it does not part, and frees nothing
      const auto stuck = [] { throw_error<Timeout>("the GPU's last work has not returned"); };
      EXPECT_THROW(static_cast<void>(close_after_failure(exchange, {stuck, nothing, free}, std::chrono::minutes(1))),
                   Timeout);
    }
    member.barrier();
    if (member.rank() == 0) {
      EXPECT_FALSE(exchange.part(std::chrono::milliseconds(1)));
    }
    member.barrier();
  });
}

TEST(TeamTable, NumbersTheSameRanksAlikeEverywhereInAnyOrder) {
  ShmThreads world(4, small_host(4));
  std::array<std::vector<int>, 4> numbers;
  run_team(4, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    TeamTable teams(*fabric);
    auto& mine = numbers[static_cast<std::size_t>(member.rank())];
    // All fifteen teams, each rank beginning with another.
    mine.resize(16);
    for (int i = 0; i < 15; ++i) {
      const int members = (i + 4 * member.rank()) % 15 + 1;
      Ranks team;
      for (int rank = 3; rank >= 0; --rank)
        if ((members >> rank & 1) != 0) team.insert(member.rank() % 2 == 0 ? team.begin() : team.end(), rank);
      mine[static_cast<std::size_t>(members)] = teams.number_of(team);
    }
    member.barrier();  // rank 0's memory outlives the others' use of it
  });
  for (const auto& others : numbers) EXPECT_EQ(others, numbers[0]);
  EXPECT_EQ(std::set<int>(numbers[0].begin() + 1, numbers[0].end()).size(), 15U);
}

TEST(WithinDeadline, ReturnsThrowsAndGivesUp) {
  int value = 0;
  within_deadline(std::chrono::minutes(1), "a call", [&value] { value = 7; });
  EXPECT_EQ(value, 7);
  EXPECT_THROW(within_deadline(std::chrono::minutes(1), "a call", [] { throw InputError("no"); }), InputError);
  const auto open = std::make_shared<std::atomic<bool>>(false);
  try {
    within_deadline(std::chrono::milliseconds(5), "ncclCommInitRank", [open] {
      while (!*open) std::this_thread::yield();
    });
    ADD_FAILURE() << "no Timeout";
  } catch (const Timeout& timeout) {
    EXPECT_THAT(timeout.what(), HasSubstr("ncclCommInitRank has not returned after 0.0 s"));
  }
  *open = true;  // the thread left behind ends
}

}  // namespace
}  // namespace heddle
