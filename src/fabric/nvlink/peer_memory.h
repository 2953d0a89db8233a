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
  // Gives all back. The other ranks must have stopped using it (see `close`).
  virtual ~PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Address on this rank's GPU of each rank's memory, zeroed; the own at heaps()[rank].
  const std::vector<std::byte*>& heaps() const { return heaps_; }

  // Collective: gives the others' memory back in good order. Without it the destructor leaves the others alone, as is
  // right when one of them is lost.
  virtual void close() = 0;

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

// Collective over the exchange's world. Throws Failure naming ranks and GPUs, Timeout naming a rank that is late.
std::unique_ptr<PeerMemory> map_nccl_windows(const PeerMemoryRequest& request);
std::unique_ptr<PeerMemory> map_cuda_ipc(const PeerMemoryRequest& request);

}  // namespace heddle
