// The inboxes through which fused operators of few rows send packets that carry their own arrival
// (device/low_latency.cuh): no fence, no flag and one trip, where a channel needs a release behind each buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/alignment.h"
#include "base/checked.h"
#include "fabric/fabric.h"
#include "fabric/symmetric_memory.h"

namespace heddle {

// Counters of one block of one rank, which only this rank's kernels access, one after the other.
struct alignas(16) PacketBlockState {
  std::uint64_t epoch = 0;       // calls of the rank, with any number of blocks
  std::uint64_t used_bytes = 0;  // of the inbox buffer, by the last of them
};

// The part that a program takes, as device/low_latency.cuh reads it: trivially copyable.
struct PacketMemory {
  static constexpr int kMostBlocks = 128;

  std::byte* inbox = nullptr;
  std::size_t buffer_bytes = 0;
  std::uint8_t* codes = nullptr;
  PacketBlockState* blocks = nullptr;

  std::size_t packets() const { return buffer_bytes / kVectorBytes; }  // of 16 bytes each, that one call may use
};

// Blocks and threads of a kernel in which each rank sends `packets` to another. One packet a lane while latency
// decides; from 32768 lanes on, which fill a link in both directions (collectives/algorithm.cpp), several. Blocks of 256
// threads leave a GEMM beside them its registers.
struct PacketGrid {
  int blocks, threads;

  static PacketGrid of(std::size_t packets) {
    constexpr std::size_t kMost = PacketMemory::kMostBlocks, kFew = 128, kMany = 256;
    const std::size_t threads = packets > kMost * kFew ? kMany : kFew;
    return {static_cast<int>(std::clamp<std::size_t>(ceil_div(packets, threads), 1, kMost)), static_cast<int>(threads)};
  }
  // Where no GEMM runs beside it: with twice as many lanes, an all-gather + GEMM of 128 to 512 rows took 4 to 6 % less time
  // on two H200s (docs/notes/fused.md).
  static PacketGrid alone(std::size_t packets) {
    constexpr std::size_t kMost = PacketMemory::kMostBlocks, kThreads = 512;
    return {static_cast<int>(std::clamp<std::size_t>(ceil_div(packets, kThreads), 1, kMost)),
            static_cast<int>(kThreads)};
  }
};

// One rank's inbox, empty and without counts. Constructed and destroyed as SymmetricMemory is.
class PacketInbox {
 public:
  // A buffer of no inbox is larger. In even shards it holds an A of 256 rows to 32768 columns, of 512 to 16384, or a sum
  // of 64 rows to 32768, of 256 rows that are scattered to 16384.
  static constexpr std::size_t kMostBufferBytes = std::size_t{16} << 20;

  PacketInbox() = default;
  // Collective over the fabric's world: returns when every rank's inbox is empty. Every rank gives the same size, of
  // which a call uses packets() at most.
  PacketInbox(Fabric& fabric, std::size_t buffer_bytes);

  // Of the symmetric heap. Throws InputError where it overflows.
  static std::size_t heap_bytes(std::size_t buffer_bytes);
  // For calls in which each of `ranks` receives `packets` from each: as many bytes, or the most. Throws InputError
  // where it overflows.
  static std::size_t buffer_bytes_for(int ranks, std::size_t packets);

  const PacketMemory& memory() const { return memory_; }

 private:
  SymmetricMemory heap_memory_;
  PacketMemory memory_;
};

}  // namespace heddle
