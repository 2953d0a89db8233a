// What waits inside kernels leave for a trace. A wait whose first look finds what it wants leaves nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/host_device.h"
#include "device/atomics.h"
#include "device/wait_record.h"

namespace heddle {

// One wait of one warp. Times are now_nanoseconds() of the GPU.
struct WaitStamp {
  std::uint64_t begin;
  std::uint64_t end;            // 0: it was not over when its kernel ended
  std::int32_t rank, from;      // as WaitReason has them
  std::uint32_t block, blocks;  // of the grid
  Tag tag;
};

// Lies in memory of the GPU, with `capacity` stamps behind it. Kernels write it, and the host reads it when they have
// ended. A slot is taken when a wait begins, so that the atomic's way to memory is a part of that wait.
struct WaitLog {
  std::uint32_t taken = 0;  // also by waits that found no room; counts to kMostCounted
  std::uint32_t capacity = 0;
  std::uint64_t clocks[2] = {};  // the GPU's, when the log was made and when it was read

  static constexpr std::uint32_t kMostCounted = 1U << 31;

  HEDDLE_HOST_DEVICE WaitStamp* stamps() { return reinterpret_cast<WaitStamp*>(this + 1); }
  static constexpr std::size_t bytes_for(std::size_t capacity) {
    return sizeof(WaitLog) + capacity * sizeof(WaitStamp);
  }
};

// A slot of a log; 0: none.
using WaitSlot = std::uint32_t;

namespace detail {
template <class T>
HEDDLE_HOST_DEVICE void write(T* place, std::type_identity_t<T> value) {
  atomic_store<Order::relaxed, Scope::gpu>(place, value);
}
}  // namespace detail

// Field by field, each in program order, and in 32 bits where they do: registers count in a kernel that waits.
HEDDLE_HOST_DEVICE WaitSlot begin_stamp(WaitLog& log, const WaitReason& reason, std::uint32_t block,
                                        std::uint32_t blocks, std::uint64_t now) {
  const std::uint32_t slot = atomic_add<Order::relaxed, Scope::gpu>(&log.taken, 1);
  if (slot >= log.capacity) {
    if (slot > WaitLog::kMostCounted) detail::write(&log.taken, WaitLog::kMostCounted);  // not from zero again
    return 0;
  }
  WaitStamp& stamp = log.stamps()[slot];
  detail::write(&stamp.begin, now);
  detail::write(&stamp.end, 0);
  detail::write(&stamp.rank, reason.rank);
  detail::write(&stamp.from, reason.from);
  detail::write(&stamp.block, block);
  detail::write(&stamp.blocks, blocks);
  struct Words {
    std::uint64_t first, second;
  };
  const auto words = std::bit_cast<Words>(reason.tag);
  auto* const tag = reinterpret_cast<std::uint64_t*>(&stamp.tag);
  detail::write(tag, words.first);
  detail::write(tag + 1, words.second);
  return slot + 1;
}

HEDDLE_HOST_DEVICE WaitStamp& stamp_in(WaitLog& log, WaitSlot slot) {
  return log.stamps()[slot - 1];
}

}  // namespace heddle
