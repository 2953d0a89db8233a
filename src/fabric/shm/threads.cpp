#include "fabric/shm/threads.h"

#include <utility>

#include "base/error.h"
#include "device/atomics.h"
#include "fabric/shm/shm_fabric.h"

namespace heddle {

ShmThreads::ShmThreads(int world_size, FabricOptions options) : options_(options) {
  const std::size_t heap_bytes = check_shm_world(world_size, options);
  world_ =
      std::make_shared<ShmWorld>(Mapping::anonymous(sizeof(ShmControl)),
                                 Mapping::anonymous(heap_bytes * static_cast<std::size_t>(world_size)), world_size);
  taken_.resize(static_cast<std::size_t>(world_size));
}

ShmThreads::ShmThreads(std::vector<std::byte*> heaps, FabricOptions options) : options_(options), taken_(heaps.size()) {
  check_shm_world(static_cast<int>(heaps.size()), options);
  world_ = std::make_shared<ShmWorld>(Mapping::anonymous(sizeof(ShmControl)), std::move(heaps), options.heap_bytes);
}

ShmThreads::~ShmThreads() = default;

std::unique_ptr<Fabric> ShmThreads::rank(int rank) {
  require(rank >= 0 && rank < world_->size(), "rank {} is not in a world of {}", rank, world_->size());
  {
    const std::lock_guard lock(mutex_);
    require(!taken_[static_cast<std::size_t>(rank)], "rank {} has been taken before", rank);
    taken_[static_cast<std::size_t>(rank)] = true;
  }
  atomic_store(&world_->control().ranks[rank].state, RankSlot::joined);
  return std::make_unique<ShmFabric>(world_, rank, options_, nullptr);
}

}  // namespace heddle
