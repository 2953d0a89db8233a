// The course of the kernels with GPUs as threads of one process; skipped where there are fewer than two. Processes are
// heddle_collective_cases's affair.
#include <gtest/gtest.h>

#include "collectives/cases.h"
#include "fabric/run_ranks.h"
#include "topology/gpu.h"

namespace heddle {
namespace {

TEST(OnGpus, CollectivesGiveTheBitsOfTheOracle) {
  const int gpus = kHaveCuda ? static_cast<int>(discover_gpus().gpus.size()) : 0;
  if (gpus < 2) GTEST_SKIP() << "needs two GPUs, there are " << gpus;
  const CollectiveCourse course{.largest = 20001, .soak_calls = 200};
  run_ranks("nvlink", gpus, {.heap_bytes = heap_bytes_of(course, gpus, DeviceKind::cuda)},
            [&](Fabric& fabric, Stream& stream) { run_course(fabric, stream, course, [](const std::string&) {}); });
}

}  // namespace
}  // namespace heddle
