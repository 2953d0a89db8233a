#include "fabric/discover_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

struct Place {
  int local_rank, num_local_ranks;
};

// The ranks of each machine, as each rank finds them, or the error that it gets, where ranks are told these places by their launcher.
std::vector<std::string> found(const std::vector<Place>& places) {
  const int ranks = static_cast<int>(places.size());
  ShmThreads world(ranks, {.heap_bytes = 4096});
  std::vector<std::string> by_rank(places.size());
  run_team(ranks, [&](TeamMember& member) {
    const auto rank = static_cast<std::size_t>(member.rank());
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    const Launch launch{.rank = member.rank(),
                        .world_size = ranks,
                        .local_rank = places[rank].local_rank,
                        .num_local_ranks = places[rank].num_local_ranks,
                        .job_key = {}};
    try {
      by_rank[rank] = fmt::format("{}", fmt::join(discover_machines(*fabric, stream, launch), ", "));
    } catch (const InputError& error) {
      by_rank[rank] = error.what();
    }
  });
  return by_rank;
}

TEST(DiscoverMachines, FindsTheRanksOfEachMachineOnEveryRank) {
  EXPECT_THAT(found({{0, 1}}), testing::Each("1"));
  EXPECT_THAT(found({{0, 3}, {1, 3}, {2, 3}}), testing::Each("3"));
  EXPECT_THAT(found({{0, 1}, {0, 1}, {0, 1}}), testing::Each("1, 1, 1"));
  EXPECT_THAT(found({{0, 2}, {1, 2}, {0, 2}, {1, 2}, {0, 2}, {1, 2}}), testing::Each("2, 2, 2"));
  EXPECT_THAT(found({{0, 2}, {1, 2}, {0, 1}}), testing::Each("2, 1"));
  EXPECT_THAT(found({{0, 1}, {0, 2}, {1, 2}}), testing::Each("1, 2"));
}

TEST(DiscoverMachines, RejectsRanksOfAMachineThatDoNotFollowEachOther) {
  EXPECT_THAT(
      found({{0, 2}, {0, 2}, {1, 2}, {1, 2}}),
      testing::Each(testing::HasSubstr("by rank, 2, 2, 2, 2 share a machine, and the place in it is 0, 0, 1, 1")));
  EXPECT_THAT(found({{0, 2}, {0, 2}, {1, 2}, {1, 2}}), testing::Each(testing::HasSubstr("--map-by slot")));
  EXPECT_THAT(found({{0, 1}, {0, 2}, {0, 1}, {1, 2}}),
              testing::Each(testing::HasSubstr("the place in it is 0, 0, 0, 1")));
  EXPECT_THAT(found({{0, 3}, {0, 3}, {1, 3}, {1, 3}, {2, 3}, {2, 3}}),
              testing::Each(testing::HasSubstr("the place in it is 0, 0, 1, 1, 2, 2")));
}

}  // namespace
}  // namespace heddle
