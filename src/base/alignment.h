// Whether memory can be read and written several bytes at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace heddle {

inline constexpr std::size_t kVectorBytes = 16;  // of the widest access of a GPU's thread, and of what TMA asks for

HEDDLE_HOST_DEVICE bool is_aligned(const void* data, std::size_t bytes = kVectorBytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace heddle
