#include "fabric/call_checks.h"

#include <optional>

#include "base/alignment.h"
#include "base/error.h"

namespace heddle {

void require_stream_and_peer(const Fabric& fabric, const Stream& stream, int peer, std::string_view operation) {
  require(stream.device() == fabric.device(), "{}: {} takes streams of {}, not of {}", operation, fabric.name(),
          name_of(fabric.device()), name_of(stream.device()));
  require(peer >= 0 && peer < fabric.size(), "{}: rank {} is not in a world of {}", operation, peer, fabric.size());
}

std::size_t require_symmetric(const Fabric& fabric, const void* place, std::size_t bytes, std::string_view operation) {
  const std::optional<std::size_t> offset = fabric.offset_of(place, bytes);
  require(offset.has_value(), "{}: {} bytes at {} are not in what rank {} has allocated of the symmetric heap",
          operation, bytes, place, fabric.rank());
  return *offset;
}

std::size_t require_flag(const Fabric& fabric, const std::uint64_t* flag, std::string_view operation) {
  require(is_aligned(flag, sizeof(*flag)), "{}: the flag at {} is not aligned to {} bytes", operation,
          static_cast<const void*>(flag), sizeof(*flag));
  return require_symmetric(fabric, flag, sizeof(*flag), operation);
}

void require_semaphore(const Fabric& fabric, const Semaphore* semaphore, std::string_view operation) {
  require_flag(fabric, &semaphore->arrived, operation);
  require_flag(fabric, &semaphore->taken, operation);
}

void require_local(const void* place, std::size_t bytes, std::string_view operation) {
  require(place != nullptr || bytes == 0, "{}: {} bytes at a null address", operation, bytes);
}

void require_equal_allocations(std::span<const std::uint64_t> asked) {
  for (std::size_t rank = 1; rank < asked.size(); ++rank)
    require(asked[rank] == asked[0],
            "allocate: rank {} asks for {} bytes, rank 0 for {}; every rank must ask for the same", rank, asked[rank],
            asked[0]);
}

void require_equal_offsets(std::span<const std::uint64_t> offsets) {
  for (std::size_t rank = 1; rank < offsets.size(); ++rank)
    require(offsets[rank] == offsets[0],
            "allocate: rank {} would get the offset {}, rank 0 {}; every rank must release the same, in the same order",
            rank, offsets[rank], offsets[0]);
}

}  // namespace heddle
