// The seam behind which NCCL and plain CUDA give the same: memory on every GPU of a node, and each rank's addresses of
// it. Free of CUDA's headers.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "fabric/nvlink/host_exchange.h"

namespace heddle {

class PeerMemory {
 public:
  // Frees the own memory. The other ranks have let go of it (closing.h).
  virtual ~PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // After map(): address on this rank's GPU of each rank's memory; the own at heaps()[rank].
  const std::vector<std::byte*>& heaps() const { return heaps_; }

  // Collective, once: tells the others of the own memory, and learns the addresses of theirs, which may be used when
  // every rank has returned. Throws Failure naming ranks and GPUs, Timeout naming a rank that is late; close or abandon
  // is due all the same, as others may have mapped this memory by then.
  virtual void map() = 0;

  // Lets go of the others' memory, of which nothing of this rank is under way any more: collective, in good order; or,
  // after a failure, alone.
  virtual void close() = 0;
  virtual void abandon() = 0;

 protected:
  PeerMemory() = default;
  std::vector<std::byte*> heaps_;
};

struct PeerMemoryRequest {
  HostExchange* exchange;  // outlives the memory
  int device;              // this rank's GPU, current on the calling thread
  std::size_t size_bytes;
  std::chrono::nanoseconds deadline;
};

// The own memory, zeroed; nobody knows of it before map(). Throws Failure when there is not that much.
std::unique_ptr<PeerMemory> nccl_windows(const PeerMemoryRequest& request);
std::unique_ptr<PeerMemory> cuda_ipc(const PeerMemoryRequest& request);

}  // namespace heddle
