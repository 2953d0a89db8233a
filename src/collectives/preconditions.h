// What the operators of this room check before they enqueue anything.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "collectives/communicator.h"

namespace heddle {

struct CallBuffer {
  const void* data;
  std::size_t bytes;
};

// Where the buffers that the other ranks reach (at most two) lie. Throws InvalidArgument when they are said to be
// symmetric but are not aligned, or not in the symmetric heap: the others would read and write whatever is there.
inline BufferPlaces places_of(std::string_view who, const Communicator& communicator, Memory memory,
                              std::initializer_list<CallBuffer> buffers) {
  BufferPlaces places{.memory = memory};
  if (memory == Memory::any) return places;
  std::uint64_t* offset = places.offsets;
  for (const CallBuffer& buffer : buffers) {
    if (buffer.bytes == 0) {  // which may be nowhere
      *offset++ = 0;
      continue;
    }
    const int rank = communicator.fabric().rank();
    require(reinterpret_cast<std::uintptr_t>(buffer.data) % 16 == 0,
            "{}: rank {}: symmetric memory must be aligned to 16 bytes, {} is not", who, rank, buffer.data);
    const auto place = communicator.fabric().offset_of(buffer.data, buffer.bytes);
    require(place.has_value(),
            "{}: rank {}: {} bytes at {} are said to be symmetric, but are not in the symmetric heap", who, rank,
            buffer.bytes, buffer.data);
    *offset++ = *place;
  }
  return places;
}

}  // namespace heddle
