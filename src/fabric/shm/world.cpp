#include "fabric/shm/world.h"

#include <cstdint>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

ShmWorld::ShmWorld(Mapping control, Mapping memory, int size)
    : control_(std::move(control)),
      memory_(std::move(memory)),
      heaps_(static_cast<std::size_t>(size)),
      heap_bytes_(memory_->size_bytes() / heaps_.size()) {
  for (std::size_t rank = 0; rank < heaps_.size(); ++rank) heaps_[rank] = memory_->data() + rank * heap_bytes_;
}

std::size_t check_shm_world(int size, const FabricOptions& options) {
  constexpr std::size_t kPageBytes = 4096;
  require(size >= 1 && size <= kMaxPeers, "shm: a world of {} ranks; it joins 1 to {}", size, kMaxPeers);
  require(options.deadline.count() > 0, "shm: a deadline of {} ns", options.deadline.count());
  constexpr int kMostNames = 128;  // Peers::to_world
  require(options.first_rank >= 0 && options.first_rank + size <= kMostNames, "shm: ranks {} to {}; names go to {}",
          options.first_rank, options.first_rank + size - 1, kMostNames - 1);
  require(options.heap_bytes > 0, "shm: a heap of 0 bytes");
  const std::size_t heap_bytes =
      checked_add(options.heap_bytes, kPageBytes - 1, "a rank's heap_bytes") / kPageBytes * kPageBytes;
  narrow<std::int64_t>(checked_mul(heap_bytes, static_cast<std::size_t>(size), "the ranks' heaps, heap_bytes x ranks"),
                       "the ranks' heaps");
  return heap_bytes;
}

}  // namespace heddle
