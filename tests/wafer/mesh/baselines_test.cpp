// T10- and Ladder-like programs on simulated cores compared with the analytical model, and their schedules.
#include "wafer/mesh/baselines.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error.h"

namespace heddle::mesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const PlmrDevice& baseline_device() {
  static const PlmrDevice device = plmr_preset("wse-2");
  return device;
}

void expect_same(const WaferCost& simulated, const WaferCost& closed) {
  EXPECT_NEAR(simulated.cycles(), closed.cycles(), 1e-9 * closed.cycles());
  EXPECT_DOUBLE_EQ(simulated.memory_bytes, closed.memory_bytes);
  EXPECT_EQ(simulated.routes, closed.routes);
  for (const WaferCost::Part& part : closed.breakdown)
    EXPECT_NEAR(simulated.cycles(part.name), part.cycles, 1e-9 * closed.cycles()) << part.name;
}

TEST(MeshBaselines, ClosedFormsAreThePrograms) {
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder})
    for (const WaferMesh cores : {WaferMesh{3, 3}, {7, 7}, {32, 24}, {24, 33}, {120, 90}})
      for (const std::int64_t n : {1, 37, 256, 1000}) {
        SCOPED_TRACE(testing::Message() << cores.width << " x " << cores.height << ", " << n);
        if (n * n > 9000LL * cores.width * cores.height / 8) continue;  // tiles that fit
        expect_same(simulate_baseline_gemm(baseline_device(), {n, n, n}, cores, method),
                    gemm_cost(baseline_device(), {n, n, n}, cores, method));
        expect_same(simulate_baseline_gemv(baseline_device(), n, n, cores, method),
                    gemv_cost(baseline_device(), n, n, cores, method));
      }
}

// A permutation of the ports: each core occurs once.
TEST(MeshBaselines, PortsAreAPermutationOfTheLine) {
  for (int cores = 1; cores <= 100; ++cores) {
    std::set<int> places;
    for (int port = 0; port < cores; ++port) places.insert(crossbar_place(cores, port));
    EXPECT_EQ(static_cast<int>(places.size()), cores);
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), cores - 1);
  }
}

TEST(MeshBaselines, WaysGrowWithTheLine) {
  const auto small = baseline_compliance(baseline_device(), 60), large = baseline_compliance(baseline_device(), 120);
  for (std::size_t i = 0; i < small.size(); ++i) {
    EXPECT_GT(large[i].hops, 1.5 * small[i].hops) << small[i].program;
    EXPECT_GT(large[i].paths, 1.5 * small[i].paths) << small[i].program;
    EXPECT_EQ(large[i].memory_tiles, small[i].memory_tiles);
    EXPECT_EQ(large[i].routes, small[i].routes);
  }
}

TEST(MeshBaselines, RefuseWhatACoreHasNot) {
  EXPECT_THAT(
      [] {
        simulate_baseline_gemm(baseline_device(), {4096, 4096, 4096}, {9, 9}, WaferMethod::ladder);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("Ladder-like GEMM"), HasSubstr("core (0, 0)"), HasSubstr("49152"))));
  EXPECT_THAT(
      [] {
        simulate_baseline_gemv(baseline_device(), 8, 8, {2, 9}, WaferMethod::t10);
      },
      ThrowsMessage<InputError>(HasSubstr("3 or more")));
}

}  // namespace
}  // namespace heddle::mesh
