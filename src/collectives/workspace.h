// What a collective's kernel finds on its rank besides its arguments: flags, inboxes and staging in the symmetric heap,
// and the counters that tell one call from the next. The counters lie in memory that the kernel itself advances, so
// that a captured graph may be replayed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

inline constexpr int kMaxBlocks = 64;  // that a collective may have; flags are laid out for them

// Of one rank; only its own kernels touch it, one after the other.
struct CollectiveState {
  std::uint64_t epoch = 0;            // calls that used the inbox so far
  std::uint64_t stale_bytes = 0;      // what the last of them used of its buffer
  std::uint64_t barriers_passed = 0;  // by each block
  std::uint32_t blocks_done = 0;      // of the call that runs
};

struct Workspace {
  std::byte* inbox = nullptr;      // three buffers, symmetric
  std::size_t buffer_bytes = 0;    // of one of the three; a multiple of 16
  std::uint64_t* flags = nullptr;  // [kMaxBlocks][ranks], symmetric
  std::byte* staging = nullptr;    // symmetric
  std::size_t staging_bytes = 0;   // a multiple of 16
  CollectiveState* state = nullptr;
};

}  // namespace heddle
