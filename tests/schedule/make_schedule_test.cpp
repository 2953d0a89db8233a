// Schedules for sizes known only at run time.
#include "schedule/make_schedule.h"

#include <gmock/gmock.h>

#include "schedule/k_tree.h"
#include "schedule/ring.h"
#include "schedule/torus.h"
#include "schedule/tree.h"
#include "schedule/two_hop.h"

namespace heddle {
namespace {

template <class S, class... Numbers>
std::string refusal_of(Numbers... numbers) {
  try {
    make_schedule<S>(numbers...);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "made";
}

TEST(MakeSchedule, RefusesWhatAScheduleDoesNotSupportAndNamesTheValue) {
  EXPECT_EQ(refusal_of<schedule::ClusterReduce>(3),
            "ClusterReduce: a team of 3 is not supported; a power of two of ranks is");
  EXPECT_EQ(refusal_of<schedule::ClusterGather>(0),
            "ClusterGather: a team of 0 is not supported; a power of two of ranks is");
  EXPECT_EQ(refusal_of<schedule::TwoHop>(2), "INTERLEAVE: a team of 2 is not supported; 3 cores or more is");
  EXPECT_EQ(refusal_of<schedule::Ring>(-1), "ring: a team of -1 is not supported; 1 rank or more is");
  EXPECT_EQ(refusal_of<schedule::KTree>(9, 0),
            "K-tree: a team of 9, 0 is not supported; 1 core or more, in 1 phase or more is");
  EXPECT_THAT(refusal_of<schedule::Torus>(2, 0), testing::HasSubstr("a team of 2, 0"));
}

TEST(MakeSchedule, MakesTheOthers) {
  EXPECT_EQ(make_schedule<schedule::Ring>(4).at(3, 0).to, 0);
  EXPECT_EQ(make_schedule<schedule::KTree>(9, 2).fan, 3);
  EXPECT_EQ(make_schedule<schedule::Torus>(2, 3).size, 6);
}

// Without a check, the result is a schedule without steps, not one that never returns.
TEST(MakeSchedule, MakersOfTheirOwnEndWhateverTheyAreGiven) {
  for (const int none : {0, -1}) {
    EXPECT_EQ(schedule::KTree::of(9, none).size, 0);
    EXPECT_EQ(schedule::Torus::of(none, 2).size, 0);
  }
}

}  // namespace
}  // namespace heddle
