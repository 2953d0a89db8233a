// What a collective's kernel finds on its rank besides its arguments: flags, inboxes and staging in the symmetric heap,
// and the counters that tell one call from the next. The counters lie in memory that the kernel itself advances, so
// that a captured graph may be replayed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

inline constexpr int kInboxBuffers = 3;  // why so many: low_latency.cuh
inline constexpr int kMaxBlocks = 128;   // that a collective may have; flags are laid out for them

// Of one block of one rank; only this rank's kernels touch it, one after the other. Each block of a call reads its own
// and moves it on while its packets are under way, so that a call ends without its blocks waiting for each other.
struct alignas(32) BlockState {
  std::uint64_t epoch = 0;            // calls of the rank that used the inbox, of however many blocks
  std::uint64_t used_bytes = 0;       // of its buffer, by the last of them
  std::uint64_t barriers_passed = 0;  // by this block with the same block of the others
  std::uint64_t chunks = 0;           // that this block has summed in pipelined calls, of each rank's piece
};

struct CollectiveMemory {
  std::byte* inbox = nullptr;      // kInboxBuffers buffers, symmetric
  std::size_t buffer_bytes = 0;    // of one of them; a multiple of 16
  std::uint8_t* codes = nullptr;   // one for each packet of the inbox (packet.cuh), 0 between calls; symmetric
  std::uint64_t* flags = nullptr;  // [kMaxBlocks][ranks], symmetric
  std::byte* staging = nullptr;    // symmetric
  std::size_t staging_bytes = 0;   // a multiple of 16
  std::size_t piece_bytes = 0;     // of the staging, for each rank of the team; a multiple of 16
  BlockState* blocks = nullptr;    // [kMaxBlocks]

  // Of pipelined_all_reduce.cuh; symmetric. Flags: [kMaxBlocks][ranks].
  std::byte* slots = nullptr;
  std::size_t slots_bytes = 0;
  std::uint64_t* shares_come = nullptr;
  std::uint64_t* sums_come = nullptr;

  // Of pipelined_broadcast.cuh, on the CPU alone; symmetric but for the last. [ranks] each.
  std::byte* root_slots = nullptr;  // as many bytes as slots
  std::uint64_t* parts_come = nullptr;
  std::uint64_t* parts_taken = nullptr;
  std::uint64_t* root_parts = nullptr;  // so far, of each rank as a root
};

}  // namespace heddle
