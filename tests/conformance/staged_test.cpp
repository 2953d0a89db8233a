// `staged` with the CPU for its device: threads whose memory only their own rank reaches, over `shm`, or over a fabric that is as
// lazy as it may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
#include "fabric/staged/staged_fabric.h"
#include "fabric/staged/staging_area.h"

namespace heddle::conformance {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct Staged {
  int ranks = 2;
  bool lazy = false;
  StagedOptions options = {};
};

std::unique_ptr<Fabric> staged(std::unique_ptr<Fabric> host, std::span<std::byte> heap, const Staged& of) {
  if (of.lazy) host = std::make_unique<LazyFabric>(std::move(host));
  return std::make_unique<StagedFabric>(std::move(host), Device{}, heap, of.options);
}

void run_staged(const Staged& of, std::size_t heap_bytes, FunctionRef<void(Fabric&, Stream&)> member) {
  ShmThreads hosts(
      of.ranks, {.heap_bytes = StagedFabric::host_heap_bytes(of.ranks, of.options), .deadline = of.options.deadline});
  run_team(of.ranks, [&](TeamMember& self) {
    Buffer heap(heap_bytes);
    const auto fabric = staged(hosts.rank(self.rank()), {heap.data(), heap.size_bytes()}, of);
    ThreadPool pool(1);
    Stream stream(pool);
    member(*fabric, stream);
  });
}

class StagedConforms : public testing::TestWithParam<Staged> {};

// Pieces that a transfer does not fill, and that it fills many times.
TEST_P(StagedConforms, ToEveryCase) {
  const Course course{.options = {.rounds = 20}, .soak_iterations = 10};
  run_staged(GetParam(), heap_bytes_for(course.options), [&](Fabric& fabric, Stream& stream) {
    EXPECT_NO_THROW(run_cases(fabric, stream, course, [](std::string_view, std::string_view) {}));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StagedConforms,
                         testing::Values(Staged{1}, Staged{2}, Staged{3, false, {.piece_bytes = 40000}},
                                         Staged{3, true, {.piece_bytes = 100000}}));

// As GPUs of two machines are: inside, ranks reach each other's memory; across, it is staged.
TEST(StagedFabric, IsTheWayAcrossOfAHierarchicalFabric) {
  const Course course{.options = {.rounds = 20}, .soak_iterations = 10};
  const std::size_t heap_bytes = heap_bytes_for(course.options);
  const Staged of{.ranks = 4, .options = {.piece_bytes = 8192}};
  ShmThreads first(2, {.heap_bytes = heap_bytes}), second(2, {.heap_bytes = heap_bytes, .first_rank = 2});
  ShmThreads hosts(4, {.heap_bytes = StagedFabric::host_heap_bytes(4, of.options)});
  run_team(4, [&](TeamMember& self) {
    const int machine = self.rank() / 2;
    auto inside = (machine == 0 ? first : second).rank(self.rank() % 2);
    const SymmetricSpan heap = inside->allocate(heap_bytes);
    auto across = staged(hosts.rank(self.rank()), {heap.data, heap.size_bytes}, of);
    HierarchicalFabric fabric(std::move(inside), std::move(across), 2 * machine);
    ThreadPool pool(1);
    Stream stream(pool);
    EXPECT_NO_THROW(run_cases(fabric, stream, course, [](std::string_view, std::string_view) {}));
  });
}

std::vector<std::string> errors_of(int ranks, milliseconds deadline, FunctionRef<void(Fabric&, Stream&)> member) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_staged({.ranks = ranks, .options = {.piece_bytes = 4096, .deadline = deadline}}, 4096,
             [&](Fabric& fabric, Stream& stream) {
               try {
                 member(fabric, stream);
               } catch (const std::exception& error) {
                 errors[static_cast<std::size_t>(fabric.rank())] = error.what();
                 fabric.abandon(error.what());
               }
             });
  return errors;
}

TEST(StagedFabric, AWaitInVainIsTheErrorOfAll) {
  const auto errors = errors_of(3, milliseconds(200), [](Fabric& fabric, Stream& stream) {
    auto* const flag = reinterpret_cast<std::uint64_t*>(fabric.allocate(8).data);
    if (fabric.rank() == 0) fabric.wait(stream, 1, flag, 7, "never");
    while (fabric.rank() != 0) fabric.synchronize(stream);
    fabric.synchronize(stream);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("rank 0 waited for rank 1 past the deadline of 0.2 s: never: expected 7, observed 0"));
}

TEST(StagedFabric, ABarrierInVainIsTheErrorOfAll) {
  const auto errors = errors_of(3, milliseconds(200), [](Fabric& fabric, Stream& stream) {
    if (fabric.rank() != 2) fabric.barrier(stream);
    while (fabric.rank() == 2) fabric.synchronize(stream);
    fabric.synchronize(stream);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("waited for rank 2 past the deadline of 0.2 s"));
}

// As a signal within a machine does, whose stream has sent nothing to another.
TEST(StagedFabric, AFenceOfAStreamThatHasSentNothingTakesNoLane) {
  run_staged({}, 4096, [](Fabric& fabric, Stream& stream) {
    constexpr std::size_t kBytes = 8 * StagingArea::kLanes + 8;
    auto* const to = fabric.allocate(kBytes).data;
    auto* const from = fabric.allocate(kBytes).data;  // the other rank writes none of it
    std::vector<std::unique_ptr<ThreadPool>> pools;
    std::vector<std::unique_ptr<Stream>> streams;
    const auto put_on = [&](Stream& lane, int number) {
      fabric.put(lane, 1 - fabric.rank(), to + 8 * number, from + 8 * number, 8);
    };
    for (int i = 0; i < StagingArea::kLanes; ++i) {
      pools.push_back(std::make_unique<ThreadPool>(1));
      streams.push_back(std::make_unique<Stream>(*pools.back()));
      put_on(*streams.back(), i);
    }
    EXPECT_NO_THROW(fabric.fence(stream)) << "all lanes are taken";
    EXPECT_THAT([&] { put_on(stream, StagingArea::kLanes); },
                testing::ThrowsMessage<InvalidArgument>(HasSubstr("more than 4 streams transfer at once")));
    for (const auto& each : streams) fabric.synchronize(*each);
    fabric.meet();
  });
}

TEST(StagedFabric, UnequalHeapsAreNamed) {
  ShmThreads hosts(2, {.heap_bytes = StagedFabric::host_heap_bytes(2)});
  run_team(2, [&](TeamMember& self) {
    Buffer heap(self.rank() == 1 ? 8192 : 4096);
    EXPECT_THAT(
        [&] {
          StagedFabric(hosts.rank(self.rank()), {}, {heap.data(), heap.size_bytes()});
        },
        testing::ThrowsMessage<InvalidArgument>(HasSubstr("rank 0 has a heap of 4096 bytes, rank 1 one of 8192")));
  });
}

}  // namespace
}  // namespace heddle::conformance
