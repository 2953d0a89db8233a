// Where work runs and where memory is.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace heddle {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  // of the GPU; 0 on the CPU

  friend auto operator<=>(const Device&, const Device&) = default;  // NOLINT(modernize-use-nullptr): compares with 0
};

// "cpu", "cuda:1".
std::string name_of(Device device);

// Which of a GPU's streams gets SMs first when some become free. The CPU knows no such order.
enum class StreamPriority : std::uint8_t { normal, high };

// True in builds with CUDA. Code for CUDA stands behind `if constexpr (kHaveCuda)`, so that a CPU-only build links
// without it and without stubs.
inline constexpr bool kHaveCuda = HEDDLE_CUDA != 0;

}  // namespace heddle
