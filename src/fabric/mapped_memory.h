// Put, get and fence where this process has the peer's memory mapped: in `shm`, and in `mpi` on one machine.
#pragma once

#include <cstddef>

namespace heddle {

// Copies; the ranges may overlap. A range that is a flag (8 aligned bytes) is read or written by one relaxed atomic
// access, so a wait for it is valid.
void copy_mapped(void* destination, const void* source, std::size_t bytes);

// std::atomic_thread_fence(seq_cst): what this thread copied before is visible to every thread that sees, by an
// acquire, a flag that it copies later; and it is written before this thread reads anything later.
void fence_mapped();

}  // namespace heddle
