// The interface that NCCL windows and CUDA IPC implement: memory on every GPU of a node, mapped on all ranks. Free of
// CUDA's headers.
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
  // Frees this rank's memory. The other ranks have unmapped it (closing.h).
  virtual ~PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // After map(): the address of each rank's memory on this rank's GPU.
  const std::vector<std::byte*>& heaps() const { return heaps_; }

  // Collective, once: exchanges handles and maps the other ranks' memory, which may be used when it returns. Throws
  // Failure naming ranks and GPUs, Timeout naming a rank that is late; the caller must then still call close or
  // abandon, since others may have mapped this memory.
  virtual void map() = 0;

  // Unmaps the other ranks' memory, which no work of this rank uses any more: close() collectively in normal operation,
  // abandon() alone after a failure.
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

// Allocates this rank's memory, zeroed. Throws Failure if there is too little.
std::unique_ptr<PeerMemory> nccl_windows(const PeerMemoryRequest& request);
std::unique_ptr<PeerMemory> cuda_ipc(const PeerMemoryRequest& request);

}  // namespace heddle
