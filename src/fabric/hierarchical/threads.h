// `hierarchical` with ranks as threads of a process.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/fabric.h"

namespace heddle {

class ShmThreads;

// Stands for machines, as many as machine_ranks() says. Inside each is an shm, and a second one across all: what a rank does is
// what a process does over mpi, but a transfer between machines is done at once.
class HierarchicalThreads {
 public:
  // Throws as ShmThreads and machine_ranks().
  explicit HierarchicalThreads(int world_size, const FabricOptions& options = {});
  ~HierarchicalThreads();  // when no rank is left

  // Collective: a rank's fabric, once each. Throws Timeout when another has not come by the deadline.
  std::unique_ptr<Fabric> rank(int rank);

 private:
  // Returns when all ranks have given theirs.
  ShmThreads& across(int rank, std::byte* heap);

  FabricOptions options_;
  int machine_ranks_;
  std::vector<std::unique_ptr<ShmThreads>> machines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte*> heaps_;       // by rank, of those that have come
  std::unique_ptr<ShmThreads> across_;  // once all have
};

}  // namespace heddle
