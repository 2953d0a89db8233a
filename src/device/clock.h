// The clock of deadlines and of stamps.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/host_device.h"

namespace heddle {

// Per device, in nanoseconds from an arbitrary point; resolution about 1 us on a GPU.
HEDDLE_HOST_DEVICE std::uint64_t now_nanoseconds() {
#ifdef __CUDA_ARCH__
  std::uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
#endif
}

}  // namespace heddle
