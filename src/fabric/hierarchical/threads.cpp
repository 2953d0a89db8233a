#include "fabric/hierarchical/threads.h"

#include <algorithm>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "fabric/hierarchical/hierarchical_fabric.h"
#include "fabric/hierarchical/machine_ranks.h"
#include "fabric/liveness.h"
#include "fabric/shm/threads.h"

namespace heddle {

HierarchicalThreads::HierarchicalThreads(int world_size, const FabricOptions& options)
    : options_(options), machine_ranks_(machine_ranks(world_size)) {
  require(world_size >= 1, "hierarchical: a world of {} ranks", world_size);
  for (int first = 0; first < world_size; first += machine_ranks_) {
    FabricOptions inside = options;
    inside.first_rank = first;
    machines_.push_back(std::make_unique<ShmThreads>(std::min(machine_ranks_, world_size - first), inside));
  }
  heaps_.resize(static_cast<std::size_t>(world_size));
}

HierarchicalThreads::~HierarchicalThreads() = default;

std::unique_ptr<Fabric> HierarchicalThreads::rank(int rank) {
  require(rank >= 0 && rank < static_cast<int>(heaps_.size()), "rank {} is not in a world of {}", rank, heaps_.size());
  const int machine = rank / machine_ranks_;
  auto inside = machines_[static_cast<std::size_t>(machine)]->rank(rank % machine_ranks_);
  std::byte* const heap = inside->allocate(options_.heap_bytes).data;
  return std::make_unique<HierarchicalFabric>(std::move(inside), across(rank, heap).rank(rank),
                                              machine * machine_ranks_);
}

ShmThreads& HierarchicalThreads::across(int rank, std::byte* heap) {
  std::unique_lock lock(mutex_);
  heaps_[static_cast<std::size_t>(rank)] = heap;
  if (std::ranges::count(heaps_, nullptr) == 0) across_ = std::make_unique<ShmThreads>(heaps_, options_);
  changed_.notify_all();
  const auto deadline =
      Deadline::after(std::chrono::duration_cast<Deadline::Clock::duration>(options_.limit_to_join()));
  if (changed_.wait_until(lock, deadline.time(), [this] { return across_ != nullptr; })) return *across_;
  std::vector<int> missing;
  for (int other = 0; other < static_cast<int>(heaps_.size()); ++other)
    if (heaps_[static_cast<std::size_t>(other)] == nullptr) missing.push_back(other);
  throw_error<Timeout>("{}", not_started(missing));
}

}  // namespace heddle
