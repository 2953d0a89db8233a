// What a dry run has in place of memory (kernels/dry_run.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// An address that is not null and aligned for every operator. No memory lies there or behind it on any machine, so that
// a read or write is a fault.
inline std::byte* stand_in_memory() {
  return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 62);
}

}  // namespace heddle
