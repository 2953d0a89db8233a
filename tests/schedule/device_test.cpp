// In a kernel `at` returns the same as on the host.
#include <gmock/gmock.h>

#include <vector>

#include "schedule/all_to_all.h"
#include "schedule/at_on_device.h"
#include "schedule/k_tree.h"
#include "schedule/ring.h"
#include "schedule/torus.h"
#include "schedule/tree.h"
#include "schedule/two_hop.h"

namespace heddle::schedule {
namespace {

template <class S>
void expect_same(const S& schedule) {
  const std::vector<Transfer> device = at_on_device(schedule);
  if (device.empty()) GTEST_SKIP() << "no GPU";
  std::vector<Transfer> host;
  for (int rank = 0; rank < schedule.size; ++rank)
    for (int step = 0; step < schedule.steps(); ++step) host.push_back(schedule.at(rank, step));
  EXPECT_TRUE(device == host);
}

TEST(OnDevice, SchedulesAreTheHosts) {
  expect_same(Ring{7});
  expect_same(AllToAll{5});
  for (const Peers peers : {Peers::pairs, Peers::offset}) {
    expect_same(ClusterReduce{16, peers});
    expect_same(ClusterGather{16, peers});
  }
  expect_same(Torus::of(4, 2));
  expect_same(TwoHop{9});
  expect_same(KTree::of(64, 2));
}

}  // namespace
}  // namespace heddle::schedule
