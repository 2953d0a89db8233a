// Checks of the arguments of Fabric's calls, shared by all fabrics. They throw InvalidArgument; the error begins with
// `operation`, the name of the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/semaphore.h"
#include "fabric/fabric.h"

namespace heddle {

// `stream` is a stream of the fabric's device, and `peer` a rank of its world.
void require_stream_and_peer(const Fabric& fabric, const Stream& stream, int peer, std::string_view operation);

// All `bytes` at `place` lie in what this rank has allocated of its heap. Returns their offset in the heap.
std::size_t require_symmetric(const Fabric& fabric, const void* place, std::size_t bytes, std::string_view operation);

// The same for a flag, which must also be aligned.
std::size_t require_flag(const Fabric& fabric, const std::uint64_t* flag, std::string_view operation);

// The same for both counts of a semaphore.
void require_semaphore(const Fabric& fabric, const Semaphore* semaphore, std::string_view operation);

// This rank's buffer of a put or get is not null, unless it is empty.
void require_local(const void* place, std::size_t bytes, std::string_view operation);

// All ranks called `allocate` with the same size; `asked` is by rank.
void require_equal_allocations(std::span<const std::uint64_t> asked);

// All ranks got the same offset from `allocate`; `offsets` is by rank.
void require_equal_offsets(std::span<const std::uint64_t> offsets);

}  // namespace heddle
