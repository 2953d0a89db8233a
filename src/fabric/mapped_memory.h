// Put, get and fence where this process has the peer's memory mapped: in `shm`, and in `mpi` on one machine.
#pragma once

#include <cstddef>

namespace heddle {

// Copies; the ranges may overlap. Where a range is a flag (8 aligned bytes), it is read or written by one relaxed atomic
// access, so it may be waited for.
void copy_mapped(void* destination, const void* source, std::size_t bytes);

// std::atomic_thread_fence(seq_cst): what this thread copied before is visible to who sees (by an acquire) a flag that
// it copies later, and is written before it reads anything later.
void fence_mapped();

}  // namespace heddle
