// `hierarchical` with ranks as threads, whose machines are groups of them: the cases, also where both of the fabrics that it joins
// are as lazy as they may be, and what ranks hear of a failure on another machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "conformance/run_cases.h"
#include "fabric/hierarchical/hierarchical_fabric.h"
#include "fabric/lazy_fabric.h"
#include "fabric/shm/threads.h"

namespace heddle::conformance {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

enum class Laziness { none, inside, across, both };

// Calls member(fabric, stream) of every rank. `machines` are their numbers of ranks.
void run_on_machines(const std::vector<int>& machines, const FabricOptions& options, Laziness laziness,
                     FunctionRef<void(Fabric&, Stream&)> member) {
  std::vector<std::unique_ptr<ShmThreads>> insides;
  std::vector<int> machine_of, first_of;  // by rank
  for (const int ranks : machines) {
    FabricOptions inside = options;
    inside.first_rank = static_cast<int>(machine_of.size());
    machine_of.insert(machine_of.end(), static_cast<std::size_t>(ranks), static_cast<int>(insides.size()));
    first_of.insert(first_of.end(), static_cast<std::size_t>(ranks), inside.first_rank);
    insides.push_back(std::make_unique<ShmThreads>(ranks, inside));
  }
  const auto lazy = [](std::unique_ptr<Fabric> fabric, bool is_lazy) {
    return is_lazy ? std::make_unique<LazyFabric>(std::move(fabric)) : std::move(fabric);
  };
  std::vector<std::byte*> heaps(machine_of.size());
  std::unique_ptr<ShmThreads> across;
  run_team(static_cast<int>(heaps.size()), [&](TeamMember& self) {
    const auto rank = static_cast<std::size_t>(self.rank());
    const int first = first_of[rank];
    auto inside = insides[static_cast<std::size_t>(machine_of[rank])]->rank(self.rank() - first);
    heaps[rank] = inside->allocate(options.heap_bytes).data;
    self.barrier();
    if (rank == 0) across = std::make_unique<ShmThreads>(heaps, options);
    self.barrier();
    ThreadPool pool(1);
    HierarchicalFabric fabric(
        lazy(std::move(inside), laziness == Laziness::inside || laziness == Laziness::both),
        lazy(across->rank(self.rank()), laziness == Laziness::across || laziness == Laziness::both), first);
    Stream stream(pool);
    member(fabric, stream);
  });
}

struct Machines {
  std::vector<int> ranks;
  Laziness laziness = Laziness::none;
};

class HierarchicalConforms : public testing::TestWithParam<Machines> {};

TEST_P(HierarchicalConforms, ToEveryCase) {
  const Course course{.options = {.rounds = 50}, .soak_iterations = 20};
  run_on_machines(GetParam().ranks, {.heap_bytes = heap_bytes_for(course.options)}, GetParam().laziness,
                  [&](Fabric& fabric, Stream& stream) {
                    EXPECT_NO_THROW(run_cases(fabric, stream, course, [](std::string_view, std::string_view) {}));
                  });
}

INSTANTIATE_TEST_SUITE_P(Machines, HierarchicalConforms,
                         testing::Values(Machines{{3}}, Machines{{1, 1}}, Machines{{2, 2}}, Machines{{1, 3}},
                                         Machines{{2, 1, 2}}));
INSTANTIATE_TEST_SUITE_P(Lazy, HierarchicalConforms,
                         testing::Values(Machines{{2, 2}, Laziness::inside}, Machines{{2, 2}, Laziness::across},
                                         Machines{{3, 2}, Laziness::both}));

// Rank 0 puts to one rank, and tells another, which looks there: one of the two is on its machine.
TEST(HierarchicalFabric, AWordByOneFabricComesBehindAPutByTheOther) {
  constexpr std::size_t kBytes = 4096;
  for (const auto& [holder, hears] : {std::pair{2, 1}, std::pair{1, 2}})
    for (const bool by_barrier : {false, true}) {
      run_on_machines({2, 2}, {.heap_bytes = 2 * kBytes}, Laziness::both, [&](Fabric& fabric, Stream& stream) {
        std::byte* const there = fabric.allocate(kBytes).data;
        auto* const flag = reinterpret_cast<std::uint64_t*>(fabric.allocate(8).data);
        Bytes bytes(kBytes);
        if (fabric.rank() == 0) {
          bytes = pattern(kBytes, 5);
          fabric.put(stream, holder, there, bytes.data(), kBytes);
          if (by_barrier)
            fabric.barrier(stream, Ranks{0, hears});
          else
            fabric.signal(stream, hears, flag, 1);
        } else if (fabric.rank() == hears) {
          if (by_barrier)
            fabric.barrier(stream, Ranks{0, hears});
          else
            fabric.wait(stream, 0, flag, 1, "word");
          fabric.get(stream, holder, bytes.data(), there, kBytes);
        }
        fabric.synchronize(stream);
        if (fabric.rank() == hears) {
          EXPECT_EQ(bytes, pattern(kBytes, 5)) << "rank " << holder << " held it, by a barrier: " << by_barrier;
        }
        fabric.meet();
      });
    }
}

TEST(HierarchicalFabric, ReachesTheRanksOfItsMachineByAddresses) {
  run_on_machines({1, 2}, {.heap_bytes = 4096}, Laziness::none, [](Fabric& fabric, Stream&) {
    EXPECT_EQ(fabric.addressable(), fabric.rank() == 0 ? Ranks{0} : (Ranks{1, 2}));
    EXPECT_FALSE(fabric.has(Capability::peer_addresses));
    EXPECT_TRUE(fabric.has(Capability::several_machines));
    if (fabric.rank() != 0) {
      EXPECT_EQ(fabric.peers(Ranks{2, 1}).world_rank(0), 2);
      EXPECT_THAT([&] { static_cast<void>(fabric.peers()); },
                  testing::ThrowsMessage<InvalidArgument>(
                      HasSubstr(fmt::format("rank 0 is on another machine than rank {}", fabric.rank()))));
    }
  });
}

TEST(HierarchicalFabric, TakesTwoFabricsOfTheSameRanksAndMemory) {
  ShmThreads inside(2, {.heap_bytes = 4096}), across(2, {.heap_bytes = 4096});
  EXPECT_THAT([&] { HierarchicalFabric(inside.rank(1), across.rank(0), 0); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("rank 0 of 2 is rank 1 of the 2")));
  ShmThreads alone(1, {.heap_bytes = 4096}), other(1, {.heap_bytes = 4096});
  HierarchicalFabric apart(alone.rank(0), other.rank(0), 0);
  EXPECT_THAT([&] { apart.allocate(64); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("the heap of shm is not that of shm")));
}

// What every rank's member throws; "" where it throws nothing. Two machines of two ranks.
std::vector<std::string> errors_of(milliseconds deadline, FunctionRef<void(Fabric&, Stream&)> member) {
  std::vector<std::string> errors(4);
  std::atomic<int> in_trouble = 0;
  run_on_machines({2, 2}, {.heap_bytes = 4096, .deadline = deadline}, Laziness::none,
                  [&](Fabric& fabric, Stream& stream) {
                    try {
                      member(fabric, stream);
                    } catch (const std::exception& error) {
                      errors[static_cast<std::size_t>(fabric.rank())] = error.what();
                      if (std::string_view(error.what()) == "bad model") fabric.abandon();
                    }
                    ++in_trouble;
                    while (in_trouble < 4) std::this_thread::yield();  // nobody leaves before all have said theirs
                  });
  return errors;
}

// Ranks of both machines wait for one that is late, or for one that waits for it.
TEST(HierarchicalFabric, ALateRankIsNamedOnEveryMachine) {
  for (const int late : {1, 3}) {
    const auto errors = errors_of(milliseconds(200), [&](Fabric& fabric, Stream& stream) {
      auto* const flag = reinterpret_cast<std::uint64_t*>(fabric.allocate(8).data);
      const int from = fabric.rank() == 2 ? late : 2;
      if (fabric.rank() != late) fabric.wait(stream, from, flag, 7, "chain");
      while (fabric.rank() == late) fabric.synchronize(stream);
      fabric.synchronize(stream);
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, testing::ContainsRegex("rank [0-3] waited for rank [0-3] past the deadline of 0.2 s: chain: "
                                                "expected 7, observed 0"));
      EXPECT_THAT(error, HasSubstr(fmt::format("rank {} is late: it does not wait for anybody", late)));
    }
    EXPECT_THAT(errors, testing::Each(errors[0])) << late;
  }
}

TEST(HierarchicalFabric, NamesRanksOfAMachineAsTheRunDoes) {
  const auto errors = errors_of(milliseconds(200), [](Fabric& fabric, Stream& stream) {
    if (fabric.rank() == 2) fabric.barrier(stream, Ranks{2, 3});
    while (fabric.rank() != 2) fabric.synchronize(stream);
    fabric.synchronize(stream);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 2 waited for rank 3 past the deadline of 0.2 s: barrier"));
    EXPECT_THAT(error, HasSubstr("rank 3 is late: it does not wait for anybody"));
  }
}

TEST(HierarchicalFabric, ARankThatThrowsEndsTheWaitsOnEveryMachine) {
  const auto errors = errors_of(std::chrono::seconds(60), [](Fabric& fabric, Stream& stream) {
    if (fabric.rank() == 3) throw InputError("bad model");
    if (fabric.rank() == 2) fabric.barrier(stream, Ranks{2, 3});
    if (fabric.rank() != 2) fabric.barrier(stream, Ranks{0, 1, 3});
    fabric.synchronize(stream);
  });
  EXPECT_EQ(errors[3], "bad model");
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "rank 3 has ended with an error of its own") << rank;
}

}  // namespace
}  // namespace heddle::conformance
