#include "parallel/tp_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"
#include "kernels/dry_run.h"
#include "parallel/operands.h"
#include "parallel/registry.h"

namespace heddle {
namespace {

TEST(TpMode, IsNamedAsTheOptionNamesIt) {
  const std::vector<std::string> names = tp_mode_names();
  EXPECT_THAT(names, testing::ElementsAre("auto", "default", "symmetric", "fused", "weave", "sequence", "no-comm"));
  for (const std::string& name : names) EXPECT_EQ(name_of(tp_mode_named(name).value()), name);
  EXPECT_FALSE(tp_mode_named("standard"));
}

TEST(TpMode, EveryModeRunsWhereRanksReachEachOther) {
  ShmThreads world(1, {.heap_bytes = std::size_t{1} << 16});
  const auto fabric = world.rank(0);
  for (const std::string& name : tp_mode_names()) require_tp_mode(tp_mode_named(name).value(), *fabric);
}

// Without a communicator, which every other mode needs.
TEST(TpMode, NoCommLetsNothingCrossRanks) {
  const auto strategy =
      make_strategy({.rank = 1, .ranks = 2, .mode = TpMode::no_comm}, {.rank = 1, .ranks = 2, .vocabulary = {4, 4}}, 8);
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<float> residual(kHidden, 1), delta(kHidden, 2), weight(kHidden, 1), y(kHidden);
  strategy->normalize({.residual = view(residual, kHidden), .delta = view(delta, kHidden)}, {weight.data(), 0},
                      view(y, kHidden), stream);
  stream.synchronize();
  EXPECT_EQ(residual, std::vector<float>(kHidden, 3));
  EXPECT_EQ(y, std::vector<float>(kHidden, 1));
}

TEST(TpMode, AutomaticIsForWhoeverReadsTheTunedStore) {
  EXPECT_THROW(make_strategy({.ranks = 2, .mode = TpMode::automatic}, {.ranks = 2}, 8), InvalidArgument);
}

}  // namespace
}  // namespace heddle
