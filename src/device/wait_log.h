// What waits inside kernels leave for a trace. A wait whose first look finds what it wants leaves nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "device/atomics.h"
#include "device/wait_record.h"

namespace heddle {

// One wait of one warp. Times are now_nanoseconds() of the GPU.
struct alignas(16) WaitStamp {
  std::uint64_t begin;
  std::uint64_t end;            // 0: it was not over when its kernel ended
  std::int32_t rank, from;      // as WaitReason has them
  std::uint32_t block, blocks;  // of the grid
  Tag tag;
};

// Lies in memory of the GPU, with `capacity` stamps behind it. Kernels write it, and the host reads it when they have
// ended. A slot is taken when a wait begins, so that the atomic's way to memory is a part of that wait.
struct alignas(16) WaitLog {
  std::uint64_t taken = 0;  // also by waits that found no room
  std::uint64_t capacity = 0;
  std::uint64_t clocks[2] = {};  // the GPU's, when the log was made and when it was read

  HEDDLE_HOST_DEVICE WaitStamp* stamps() { return reinterpret_cast<WaitStamp*>(this + 1); }
  static constexpr std::size_t bytes_for(std::size_t capacity) {
    return sizeof(WaitLog) + capacity * sizeof(WaitStamp);
  }
};

// A slot of a log; 0: none.
using WaitSlot = std::uint32_t;

HEDDLE_HOST_DEVICE WaitSlot begin_stamp(WaitLog& log, const WaitReason& reason, std::uint32_t block,
                                        std::uint32_t blocks, std::uint64_t now) {
  const std::uint64_t slot = atomic_add<Order::relaxed, Scope::gpu>(&log.taken, 1);
  if (slot >= log.capacity) return 0;
  log.stamps()[slot] = {.begin = now,
                        .end = 0,
                        .rank = reason.rank,
                        .from = reason.from,
                        .block = block,
                        .blocks = blocks,
                        .tag = reason.tag};
  return static_cast<WaitSlot>(slot + 1);
}

HEDDLE_HOST_DEVICE WaitStamp& stamp_in(WaitLog& log, WaitSlot slot) {
  return log.stamps()[slot - 1];
}

}  // namespace heddle
