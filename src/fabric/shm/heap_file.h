// The file with the heaps of ranks that share one machine. It lies in memory and has no name, so nothing is left behind
// however the processes end. Rank 0 creates it; the others open it through /proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/shm/shared_object.h"

namespace heddle {

// Filled with zeros. Throws Failure.
OpenFile make_heap_file(std::size_t size_bytes);

// The path by which other processes of this user, in this container, open it.
std::string path_of_heap_file(std::uint64_t process, std::uint64_t file);

// Throws InputError if the heaps exceed `available_bytes` of memory; 0: unknown.
void require_memory_for_heaps(std::string_view fabric, int ranks, std::size_t heap_bytes, std::size_t available_bytes);

}  // namespace heddle
