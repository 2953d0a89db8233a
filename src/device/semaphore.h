// A flag that counts messages. Both counts lie in memory of the rank that waits, so a captured graph that signals and
// waits is right on every replay: nothing of the count is in the graph.
#pragma once

#include <cstdint>

namespace heddle {

// Lies in the symmetric heap, zeroed, and is written by signal_next and wait_next alone. Any ranks signal it; its owner
// waits in one stream or group at a time.
struct Semaphore {
  std::uint64_t arrived;  // messages so far
  std::uint64_t taken;    // of them, waits so far
};

}  // namespace heddle
