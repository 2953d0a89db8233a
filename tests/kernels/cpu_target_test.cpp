#include "kernels/cpu_target.h"

#include <gmock/gmock.h>

namespace heddle {
namespace {

TEST(CpuTarget, IsNamedAndHasSixteenLanesAtMost) {
  const CpuTarget target = cpu_target();
  EXPECT_FALSE(target.name.empty());
  EXPECT_THAT(target.vector_lanes, ::testing::AnyOf(1, 4, 8, 16));
}

}  // namespace
}  // namespace heddle
