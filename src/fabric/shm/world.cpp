#include "fabric/shm/world.h"

#include <cstdint>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

std::size_t check_shm_world(int size, const FabricOptions& options) {
  constexpr std::size_t kPageBytes = 4096;
  require(size >= 1 && size <= kMaxPeers, "shm: a world of {} ranks; it joins 1 to {}", size, kMaxPeers);
  require(options.deadline.count() > 0, "shm: a deadline of {} ns", options.deadline.count());
  require(options.heap_bytes > 0, "shm: a heap of 0 bytes");
  const std::size_t heap_bytes =
      checked_add(options.heap_bytes, kPageBytes - 1, "a rank's heap_bytes") / kPageBytes * kPageBytes;
  narrow<std::int64_t>(checked_mul(heap_bytes, static_cast<std::size_t>(size), "the ranks' heaps, heap_bytes x ranks"),
                       "the ranks' heaps");
  return heap_bytes;
}

}  // namespace heddle
