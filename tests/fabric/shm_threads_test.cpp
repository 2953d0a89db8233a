#include "fabric/shm/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <string>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "device/enqueue_body.h"
#include "device/one_sided.h"
#include "fabric/fabric.h"
#include "fabric/run_ranks.h"
#include "fabric/shm/control.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// What `member(fabric, stream)` of every rank throws; "" where it throws nothing.
std::vector<std::string> errors_of(int size, FabricOptions options, FunctionRef<void(Fabric&, Stream&)> member) {
  ShmThreads world(size, options);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  run_team(size, [&](TeamMember& self) {
    ThreadPool pool(1);
    try {
      const std::unique_ptr<Fabric> fabric = world.rank(self.rank());
      Stream stream(pool);
      member(*fabric, stream);
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(self.rank())] = error.what();
    }
  });
  return errors;
}

TEST(ShmThreads, RefusesWorldsAndOptionsThatMakeNoSense) {
  EXPECT_THROW(ShmThreads(0), InvalidArgument);
  EXPECT_THROW(ShmThreads(kMaxPeers + 1), InvalidArgument);
  EXPECT_THROW(ShmThreads(2, {.heap_bytes = 0}), InvalidArgument);
  EXPECT_THROW(ShmThreads(2, {.heap_bytes = std::size_t(-1)}), InputError);
  EXPECT_THROW(ShmThreads(2, {.heap_bytes = std::size_t(1) << 63}), InputError);
  EXPECT_THROW(ShmThreads(2, {.deadline = milliseconds(0)}), InvalidArgument);
  EXPECT_THROW(ShmThreads(2, {.first_rank = 127}), InvalidArgument) << "names are of 0 to 127";
}

TEST(ShmThreads, GivesARankOnce) {
  ShmThreads world(2, {.heap_bytes = 4096});
  const auto fabric = world.rank(1);
  EXPECT_EQ(fabric->rank(), 1);
  EXPECT_THROW(world.rank(1), InvalidArgument);
  EXPECT_THROW(world.rank(2), InvalidArgument);
  EXPECT_THROW(world.rank(-1), InvalidArgument);
}

TEST(ShmThreads, UnequalAllocationsAreNamedOnEveryRank) {
  const auto errors = errors_of(3, {.heap_bytes = 1 << 20}, [](Fabric& fabric, Stream&) {
    fabric.allocate(100);
    fabric.allocate(fabric.rank() == 2 ? 4096 : 1024);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank 2 asks for 4096 bytes, rank 0 for 1024"));
}

TEST(ShmThreads, AFullHeapSaysWhatIsLeft) {
  const auto errors = errors_of(2, {.heap_bytes = 4096}, [](Fabric& fabric, Stream&) {
    fabric.allocate(4000);
    fabric.allocate(97);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("has 0 of its 4096 bytes left, and 97"));
}

// A body knows ranks of its team alone; people know those of the world.
struct WaitForTheSecond {
  Peers peers;
  const std::uint64_t* flag;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    static_cast<void>(wait_until(group, peers, 1, flag, 7, "part"));
  }
};

TEST(ShmThreads, AWaitInAPartOfTheWorldNamesTheWorldsRanks) {
  const auto errors = errors_of(3, {.heap_bytes = 4096, .deadline = milliseconds(100)}, [](Fabric& fabric, Stream& s) {
    auto* flag = reinterpret_cast<std::uint64_t*>(fabric.allocate(8).data);
    if (fabric.rank() == 1) enqueue_body(s, {}, WaitForTheSecond{fabric.peers(Ranks{1, 2}), flag});
    fabric.synchronize(s);
    while (atomic_load<Order::relaxed>(&fabric.peers().waits.record->state) == WaitRecord::empty)
      std::this_thread::yield();
    fabric.synchronize(s);
  });
  EXPECT_THAT(errors[1], HasSubstr("rank 1 waited for rank 2"));
}

TEST(ShmThreads, ALateRankIsNamedByEveryOther) {
  // 0 waits for 1, 1 for 2, and 2 for nobody.
  const auto errors = errors_of(3, {.heap_bytes = 4096, .deadline = milliseconds(100)}, [](Fabric& fabric, Stream& s) {
    auto* flag = reinterpret_cast<std::uint64_t*>(fabric.allocate(8).data);
    if (fabric.rank() < 2) fabric.wait(s, fabric.rank() + 1, flag, 7, "chain");
    while (fabric.rank() == 2 && atomic_load<Order::relaxed>(&fabric.peers().waits.record->state) == WaitRecord::empty)
      std::this_thread::yield();
    fabric.synchronize(s);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("past the deadline of 0.1 s: chain: expected 7, observed 0"));
    EXPECT_THAT(error, HasSubstr("rank 2 is late: it does not wait for anybody"));
  }
}

TEST(ShmThreads, ARankThatThrowsEndsTheOthersWaits) {
  const auto errors = errors_of(3, {.heap_bytes = 4096}, [](Fabric& fabric, Stream& s) {
    if (fabric.rank() == 1) throw InputError("bad model");
    fabric.barrier(s);
    fabric.synchronize(s);
  });
  EXPECT_EQ(errors[1], "bad model");
  for (const int rank : {0, 2})
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "rank 1 has ended with an error of its own");
}

TEST(ShmThreads, AFabricThatHasFailedStaysFailed) {
  const auto errors = errors_of(1, {.heap_bytes = 4096, .deadline = milliseconds(10)}, [](Fabric& fabric, Stream& s) {
    auto* flag = reinterpret_cast<std::uint64_t*>(fabric.allocate(8).data);
    fabric.wait(s, 0, flag, 1, "never");
    EXPECT_THROW(fabric.synchronize(s), Timeout);
    fabric.signal(s, 0, flag, 1);
    fabric.synchronize(s);
  });
  EXPECT_THAT(errors[0], HasSubstr("never"));
}

TEST(ShmThreads, OneTeamMoreThanItCountsBarriersOfIsAnError) {
  const auto control = std::make_unique<ShmControl>();
  for (int i = 0; i < kMaxShmTeams; ++i) EXPECT_EQ(number_of(*control, std::vector{i % 8, 8 + i / 8}), i);
  EXPECT_EQ(number_of(*control, std::vector{8, 1}), 1) << "the order of ranks does not matter";
  EXPECT_THROW(number_of(*control, std::vector{0, 1}), Failure);
}

int usable_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof usable, &usable);
  return CPU_COUNT(&usable);
}

// And the thread that called goes on with all of them.
TEST(RunRanks, GivesEachThreadItsShareOfTheProcessors) {
  const int all = usable_processors();
  for (const int ranks : {1, 2, all + 1}) {
    std::atomic<int> wrong = 0;
    run_ranks("shm", ranks, {}, [&](Fabric&, Stream& stream) {
      const int share = ranks > all ? all : all / ranks;
      if (usable_processors() != share) ++wrong;
      stream.enqueue([&wrong, share](ThreadPool&) { wrong += usable_processors() != share ? 1 : 0; });
      stream.synchronize();
    });
    EXPECT_EQ(wrong, 0) << ranks;
    EXPECT_EQ(usable_processors(), all);
  }
}

}  // namespace
}  // namespace heddle
