// What the operators of this room check before they enqueue anything.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "collectives/communicator.h"

namespace heddle {

// Whether the algorithms may take the buffers as symmetric. Throws InvalidArgument when they are said to be but are
// not aligned.
inline bool require_aligned(std::string_view who, const Communicator& communicator, Memory memory,
                            std::initializer_list<const void*> buffers) {
  if (memory == Memory::any) return false;
  for (const void* buffer : buffers)
    require(reinterpret_cast<std::uintptr_t>(buffer) % 16 == 0,
            "{}: rank {}: symmetric memory must be aligned to 16 bytes, {} is not", who, communicator.fabric().rank(),
            buffer);
  return true;
}

}  // namespace heddle
