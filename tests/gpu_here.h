// For tests that need a GPU: they skip, with the reason, where there is none that Heddle can use.
#pragma once

#include <string>

#include "machine/device_choice.h"
#include "machine/gpu.h"

namespace heddle {

inline constexpr Device kFirstGpu{DeviceKind::cuda, 0};

// Empty: there is one.
inline std::string why_no_gpu() {
  const GpuDiscovery found = discover_gpus();
  return found.gpus.empty() ? found.why_none : why_unusable(found, 0);
}

}  // namespace heddle
