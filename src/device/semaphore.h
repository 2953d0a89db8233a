// A flag that counts messages. Both counts lie in memory of the rank that waits and none is in a captured graph, so
// replays stay correct.
#pragma once

#include <cstdint>

namespace heddle {

// Lies in the symmetric heap, zeroed, and is written by signal_next and wait_next alone. Any ranks signal it; its owner
// waits in one stream or group at a time.
struct Semaphore {
  std::uint64_t arrived;  // messages so far
  std::uint64_t taken;    // waits so far
};

}  // namespace heddle
