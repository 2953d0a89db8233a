#include "machine/gpu.h"

#include <gmock/gmock.h>

#include "base/device.h"
#include "machine/folder.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Gpu, DiscoveryGivesGpusOrTheReason) {
  const GpuDiscovery found = discover_gpus();
  EXPECT_EQ(found.gpus.empty(), !found.why_none.empty()) << found.why_none;
  EXPECT_THAT(found.why_none, Not(HasSubstr("\n")));
  EXPECT_EQ(found.runtime_version.empty(), !kHaveCuda);
  if (!kHaveCuda) {
    EXPECT_THAT(found.why_none, HasSubstr("no CUDA side"));
  }
  for (const GpuInfo& gpu : found.gpus) {
    EXPECT_THAT(gpu.name, Not(IsEmpty()));
    EXPECT_GT(gpu.num_sms, 0);
    EXPECT_GT(gpu.memory_bytes, 0);
    for (const int peer : gpu.peers) EXPECT_LT(static_cast<std::size_t>(peer), found.gpus.size());
  }
}

TEST(Gpu, TheDriversFilesNameWhatIsInstalled) {
  const TestFolder root;
  EXPECT_THAT(installed_gpus(root.path()), IsEmpty());
  root.write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\n");
  root.write("proc/driver/nvidia/gpus/0000:0a:00.0/information", "Model: \t\t NVIDIA A10\n");
  root.write("proc/driver/nvidia/gpus/0000:0b:00.0/information", "no model here\n");
  root.write("proc/driver/nvidia/gpus/stray", "");
  EXPECT_THAT(installed_gpus(root.path()), ElementsAre("NVIDIA A10", "NVIDIA H100 80GB HBM3"));
}

}  // namespace
}  // namespace heddle
