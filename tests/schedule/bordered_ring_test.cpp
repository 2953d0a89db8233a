#include "schedule/bordered_ring.h"

#include <gmock/gmock.h>

namespace heddle::schedule {
namespace {

TEST(BorderedRing, SeesEveryPieceAndCrossesEachBorderOnceForAnyPlacement) {
  for (const int size : {1, 2, 3, 4, 5, 6, 8, 11})
    for (const int first : {0, 1, 3})
      for (const int stride : {1, 2, 3, 8})
        for (const int ranks_per_machine : {1, 2, 3, 4, 8}) {
          const BorderedRing ring{
              .size = size, .first = first, .stride = stride, .ranks_per_machine = ranks_per_machine};
          SCOPED_TRACE(testing::Message() << size << " members from " << first << " by " << stride << " on machines of "
                                          << ranks_per_machine);
          EXPECT_TRUE(sees_every_piece_once(ring));
          EXPECT_TRUE(crosses_each_border_once(ring));
          EXPECT_TRUE(pulls_from_who_has_it(ring));
          EXPECT_TRUE(imports_come_first(ring));
        }
}

// Two machines of three and two: the first of two imports pieces 0 and 2, the second piece 1.
TEST(BorderedRing, DividesTheImportsOfALargerMachine) {
  const BorderedRing ring{.size = 5, .ranks_per_machine = 3};
  std::vector<int> pieces, from;
  for (int step = 0; step < ring.steps(); ++step) {
    pieces.push_back(ring.at(3, step).piece);
    from.push_back(ring.at(3, step).from);
  }
  EXPECT_THAT(pieces, testing::ElementsAre(3, 4, 0, 2, 1));
  EXPECT_THAT(from, testing::ElementsAre(3, 4, 0, 2, 4));
}

}  // namespace
}  // namespace heddle::schedule
