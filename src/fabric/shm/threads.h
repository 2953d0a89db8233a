// `shm` with ranks as threads of one process.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/fabric.h"

namespace heddle {

class ShmWorld;

// Owns the memory of a world of ranks; each thread takes its rank's fabric:
//
//   ShmThreads world(4);
//   run_team(4, [&](TeamMember& member) { auto fabric = world.rank(member.rank()); ... });
class ShmThreads {
 public:
  // Throws InvalidArgument unless 1 <= world_size <= kMaxPeers and the options make sense; Failure when the system
  // gives no such memory.
  explicit ShmThreads(int world_size, FabricOptions options = {});
  // The same with heaps that are the caller's memory, by rank: each of options.heap_bytes, zeroed, and there for as long as
  // a rank is.
  ShmThreads(std::vector<std::byte*> heaps, FabricOptions options);
  ~ShmThreads();

  // A rank's fabric, once each (InvalidArgument otherwise); from any thread. It keeps the memory alive.
  std::unique_ptr<Fabric> rank(int rank);

 private:
  std::shared_ptr<ShmWorld> world_;
  FabricOptions options_;
  std::mutex mutex_;
  std::vector<bool> taken_;
};

}  // namespace heddle
