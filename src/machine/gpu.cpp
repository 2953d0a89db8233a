#include "machine/gpu.h"

#include <algorithm>

#include "base/device.h"
#include "machine/gpu_cuda.h"
#include "machine/system_file.h"

namespace heddle {

GpuDiscovery discover_gpus() {
  if constexpr (kHaveCuda) {
    GpuDiscovery found = cuda::discover_gpus();
    std::error_code error;
    if (found.gpus.empty() && !std::filesystem::exists("/dev/nvidiactl", error))
      found.why_none = "no NVIDIA driver: /dev/nvidiactl is missing";
    return found;
  }
  GpuDiscovery none;
  none.why_none = "this build has no CUDA side (that of the preset cuda has)";
  return none;
}

std::vector<std::string> installed_gpus(const std::filesystem::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  const std::filesystem::directory_iterator folders(root / "proc/driver/nvidia/gpus", error);
  if (error) return names;
  for (auto folder = begin(folders); folder != end(folders); folder.increment(error)) {
    const std::string information = read_system_file(folder->path() / "information");
    const std::string_view model = line_value(information, "Model");
    if (!model.empty()) names.emplace_back(model);
    if (error) break;
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace heddle
