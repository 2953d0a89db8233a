// An AllReduceNorm's memory on one rank: inboxes, slots and flags in the symmetric heap, and the counters that tell one
// call from the next. Kernels advance the counters in device memory, so a captured graph may be replayed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Counters of one block of one rank, which only this rank's kernels access, one after the other.
struct alignas(32) NormBlockState {
  std::uint64_t epoch = 0;       // calls of the rank that used the inbox, with any number of blocks
  std::uint64_t used_bytes = 0;  // of the inbox buffer, by the last of them
  std::uint64_t chunks = 0;      // of each rank's rows, in pipelined calls so far; a direct call counts as one
};

struct AllReduceNormMemory {
  static constexpr int kMostBlocks = 132;  // flags and counters are laid out for them

  // For device/low_latency.cuh.
  std::byte* inbox = nullptr;    // kInboxBuffers buffers, symmetric
  std::size_t buffer_bytes = 0;  // of one buffer; a multiple of 16
  NormBlockState* blocks = nullptr;

  // For pipelined calls, symmetric. Flags: [kMostBlocks][ranks], by the rank that raises them; they count chunks over
  // all calls, so a call of either form begins with what the one before has told. In a direct call shares_come says
  // that all of that rank's x is complete and nobody there reads y, rows_come that its rows are in y here and it has
  // read x; rows_taken stays as it is.
  std::byte* slots = nullptr;
  std::size_t slots_bytes = 0;
  std::uint64_t* shares_come = nullptr;  // its share of this rank's rows is here
  std::uint64_t* rows_come = nullptr;    // its rows are here, normalised; and it has read the shares of them
  std::uint64_t* rows_taken = nullptr;   // it has copied out what this rank sent it
};

}  // namespace heddle
