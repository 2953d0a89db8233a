// Checks of what a Fabric's calls are given, the same for all fabrics. They throw InvalidArgument; `operation` is the
// call's name, with which the error begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/semaphore.h"
#include "fabric/fabric.h"

namespace heddle {

// A stream of the fabric's device, and a rank of its world.
void require_stream_and_peer(const Fabric& fabric, const Stream& stream, int peer, std::string_view operation);

// That all `bytes` at `place` lie in what this rank has allocated of its heap; returns their offset there.
std::size_t require_symmetric(const Fabric& fabric, const void* place, std::size_t bytes, std::string_view operation);

// As require_symmetric, of an aligned flag.
std::size_t require_flag(const Fabric& fabric, const std::uint64_t* flag, std::string_view operation);

// As require_flag, of both counts.
void require_semaphore(const Fabric& fabric, const Semaphore* semaphore, std::string_view operation);

// That the own memory of a put or get is not null where it has bytes.
void require_local(const void* place, std::size_t bytes, std::string_view operation);

// That all ranks ask `allocate` for the same; by rank.
void require_equal_allocations(std::span<const std::uint64_t> asked);

// That all ranks get the same offset of `allocate`; by rank.
void require_equal_offsets(std::span<const std::uint64_t> offsets);

}  // namespace heddle
