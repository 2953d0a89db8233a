// The file that holds the heaps of ranks that share one machine: in memory and without a name, so nothing is left behind
// however the processes end. Rank 0 makes it; the others open it through /proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/shm/shared_object.h"

namespace heddle {

// Of zeros. Throws Failure.
OpenFile make_heap_file(std::size_t size_bytes);

// Where other processes of this user, in this container, open it.
std::string path_of_heap_file(std::uint64_t process, std::uint64_t file);

// Throws InputError when that many heaps are more than the `available_bytes` of memory; 0: not known.
void require_memory_for_heaps(std::string_view fabric, int ranks, std::size_t heap_bytes, std::size_t available_bytes);

}  // namespace heddle
