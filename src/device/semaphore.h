// A flag that counts messages. Both counts lie in memory of the rank that waits, so a captured graph that signals and
// waits is right on every replay: nothing of the count is in the graph.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/spin.h"

namespace heddle {

// Lies in the symmetric heap, zeroed, and is written by signal_next and wait_next alone. Any ranks signal it; its owner
// waits in one stream or group at a time.
struct Semaphore {
  std::uint64_t arrived;  // messages so far
  std::uint64_t taken;    // of them, waits so far
};

// One thread's wait for one message more (acquire at system scope). False as spin_until: no message is taken then.
template <class Limit>
[[nodiscard]] HEDDLE_HOST_DEVICE bool take_next(const Limit& limit, const WaitReason& reason, Semaphore& semaphore) {
  const std::uint64_t next = semaphore.taken + 1;
  if (!spin_until(limit, reason, &semaphore.arrived, next)) return false;
  semaphore.taken = next;
  return true;
}

}  // namespace heddle
