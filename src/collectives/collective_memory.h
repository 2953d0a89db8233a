// A communicator's memory on one rank: flags, inboxes and staging in the symmetric heap, and the counters that tell one
// call from the next. The kernel itself advances the counters in device memory, so a captured graph may be replayed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

inline constexpr int kMaxBlocks = 128;  // of a collective; flags are laid out for them

// Counters of one block of one rank. Only this rank's kernels access it, one after the other. Each block of a call
// reads its own and advances it while its packets are in flight, so the blocks of a call need not wait for each other.
struct alignas(32) BlockState {
  std::uint64_t epoch = 0;            // calls of the rank that used the inbox, with any number of blocks
  std::uint64_t used_bytes = 0;       // of the inbox buffer, by the last of them
  std::uint64_t barriers_passed = 0;  // with the same block of the other ranks (device/block_barrier.cuh)
  std::uint64_t chunks = 0;           // of each rank's piece in pipelined calls so far
};

struct CollectiveMemory {
  static constexpr int kMostBlocks = kMaxBlocks;

  std::byte* inbox = nullptr;      // kInboxBuffers buffers, symmetric
  std::size_t buffer_bytes = 0;    // of one buffer; a multiple of 16
  std::uint8_t* codes = nullptr;   // escape codes, one per packet of the inbox (packet.cuh), 0 between calls; symmetric
  std::uint64_t* flags = nullptr;  // [kMaxBlocks][ranks], symmetric
  std::byte* staging = nullptr;    // symmetric
  std::size_t staging_bytes = 0;   // a multiple of 16
  std::size_t piece_bytes = 0;     // of staging per rank of the team; a multiple of 16
  BlockState* blocks = nullptr;    // [kMaxBlocks]

  // For pipelined_all_reduce.cuh; symmetric. Flags: [kMaxBlocks][ranks].
  std::byte* slots = nullptr;
  std::size_t slots_bytes = 0;
  std::uint64_t* shares_come = nullptr;
  std::uint64_t* sums_come = nullptr;

  // For pipelined_broadcast.cuh, only on the CPU; all but the last symmetric. [ranks] each.
  std::byte* root_slots = nullptr;  // as many bytes as slots
  std::uint64_t* parts_come = nullptr;
  std::uint64_t* parts_taken = nullptr;
  std::uint64_t* root_parts = nullptr;  // parts so far, by root
};

}  // namespace heddle
