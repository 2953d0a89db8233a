// What every collective checks of its arguments before it enqueues anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "base/alignment.h"
#include "base/error.h"
#include "collectives/communicator.h"
#include "fabric/call_checks.h"

namespace heddle {

struct CallBuffer {
  const void* data;
  std::size_t bytes;
};

// Bytes of `pieces` times `count` elements. Throws InvalidArgument if that is more than any memory holds.
inline std::size_t bytes_of(std::string_view who, const Communicator& communicator, std::size_t count, DType dtype,
                            int pieces = 1) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const std::size_t unit = size_of(dtype) * static_cast<std::size_t>(pieces);
  require(count <= kMost / unit,
          "{}: rank {}: a count of {} elements of {} bytes, times {}, is more than memory can hold", who,
          communicator.fabric().rank(), count, size_of(dtype), pieces);
  return count * unit;
}

// What a call reads and writes. `in_place` is input's byte offset from output in a call in place.
struct CallBuffers {
  CallBuffer input, output;
  std::ptrdiff_t in_place = 0;
};

// Throws InvalidArgument for a null buffer that is not empty, and for buffers that overlap but are not in place.
inline void require_buffers(std::string_view who, const Communicator& communicator, const CallBuffers& buffers) {
  const auto& [input, output, in_place] = buffers;
  const int rank = communicator.fabric().rank();
  require(input.data != nullptr || input.bytes == 0, "{}: rank {}: the input of {} bytes is null", who, rank,
          input.bytes);
  require(output.data != nullptr || output.bytes == 0, "{}: rank {}: the output of {} bytes is null", who, rank,
          output.bytes);
  const auto from = reinterpret_cast<std::uintptr_t>(input.data), to = reinterpret_cast<std::uintptr_t>(output.data);
  const bool overlap = from < to + output.bytes && to < from + input.bytes;
  require(
      !overlap || from - to == static_cast<std::uintptr_t>(in_place),
      "{}: rank {}: the input ({} bytes at {}) overlaps the output ({} bytes at {}) and is not in place, which is {} "
      "bytes from its begin",
      who, rank, input.bytes, input.data, output.bytes, output.data, in_place);
}

// Where the buffers that peers reach (at most two) lie. Throws InvalidArgument for Memory::symmetric with a buffer that
// is not aligned or not in the symmetric heap: peers would read and write whatever lies there.
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
    require(is_aligned(buffer.data), "{}: rank {}: symmetric memory must be aligned to {} bytes, {} is not", who,
            communicator.fabric().rank(), kVectorBytes, buffer.data);
    *offset++ = require_symmetric(communicator.fabric(), buffer.data, buffer.bytes, who);
  }
  return places;
}

}  // namespace heddle
