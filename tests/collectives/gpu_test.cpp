// The course of the kernels with ranks as threads of one process, on GPUs of their own and on one shared GPU; skipped
// if there are too few. heddle_collective_cases covers ranks that are processes.
#include <gtest/gtest.h>

#include <string>

#include "collectives/cases.h"
#include "fabric/run_ranks.h"
#include "machine/gpu.h"

namespace heddle {
namespace {

int num_gpus() {
  return kHaveCuda ? static_cast<int>(discover_gpus().gpus.size()) : 0;
}

void run_on_gpus(std::string_view fabric_name, int ranks, const CollectiveCourse& course) {
  run_ranks(fabric_name, ranks, {.heap_bytes = heap_bytes_of(course, ranks, DeviceKind::cuda)},
            [&](Fabric& fabric, Stream& stream) { run_course(fabric, stream, course, [](const std::string&) {}); });
}

TEST(OnGpus, CollectivesGiveTheBitsOfTheOracle) {
  if (num_gpus() < 2) GTEST_SKIP() << "needs two GPUs, there are " << num_gpus();
  run_on_gpus("nvlink", num_gpus(), {.largest = 20001, .soak_calls = 200});
}

class OnOneGpu : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (num_gpus() != 1) GTEST_SKIP() << "needs one GPU that all ranks share, there are " << num_gpus();
  }
};

TEST_P(OnOneGpu, CollectivesGiveTheBitsOfTheOracle) {
  run_on_gpus("nvlink-ipc", GetParam(), {.largest = 4099, .soak_calls = 200});
}

// A grid larger than its lane is an error (device/launch_sm90.cuh).
TEST_P(OnOneGpu, CollectivesOnALaneOfThreeSmsGiveTheBitsOfTheOracle) {
  run_on_gpus("nvlink-ipc", GetParam(), {.largest = 599, .sms = 3});
}

TEST_P(OnOneGpu, CollectivesOfAGraphReplayedTenThousandTimesHaveTheBitsOfEagerCalls) {
  if (GetParam() > 4) GTEST_SKIP() << "takes long: scripts/gpu.sh replays does it";
  run_on_gpus("nvlink-ipc", GetParam(), {.largest = 64, .replays = 10'000});
}

INSTANTIATE_TEST_SUITE_P(Ranks, OnOneGpu, testing::Values(2, 4, 8),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace heddle
