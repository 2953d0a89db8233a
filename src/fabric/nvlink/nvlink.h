// The fabric between the GPUs of a node: one-sided memory over NVLink. A rank is a GPU, or a share of one; ranks are
// threads of one process or processes. README.md says how it keeps the contract of fabric.h. Free of CUDA's headers.
// Defined only in builds with CUDA, so callers use `if constexpr (kHaveCuda)`.
//
// `signal` and `wait`, which name a value, must not be captured in a graph (InvalidArgument); all other operations may.
//
// Ranks may share a GPU as threads of one process (cuda_ipc); README.md says what their hosts must avoid meanwhile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "fabric/fabric.h"

namespace heddle {

// How the ranks' heaps are allocated and mapped into each other's address space.
enum class PeerMemoryKind : std::uint8_t {
  nccl_windows,  // NCCL's symmetric windows; needs the NCCL version of this build, and one GPU per rank
  cuda_ipc       // plain CUDA: IPC handles between processes, peer access between threads; ranks may share a GPU
};
std::string_view name_of(PeerMemoryKind kind);  // "nccl_windows", "cuda_ipc"

struct NvlinkOptions {
  FabricOptions fabric;
  PeerMemoryKind memory = PeerMemoryKind::nccl_windows;
  // A put or get of at least this size uses the copy engine (DMA).
  std::size_t copy_engine_bytes = std::size_t{512} << 10;
  // How long synchronize() waits for a stream once NCCL's collectives are open (nccl_collectives.h): they have no
  // deadline.
  std::chrono::nanoseconds vendor_deadline{std::chrono::seconds(60)};
};

// Bytes of the host fabric's heap that open_nvlink() takes for a world of that size.
std::size_t nvlink_host_heap_bytes(int world_size);

// Collective over the ranks of `host`, a fabric with peer addresses in host memory that nothing else uses. The rank's
// memory is on GPU `device`, which becomes the calling thread's current one. Throws InvalidArgument when the ranks'
// heap_bytes or memory differ (other options may); Failure that names the GPU: no such device, two GPUs without peer
// access, another NCCL version, an address that does not reach its peer; Timeout that names a late rank.
std::unique_ptr<Fabric> open_nvlink(std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options = {});

}  // namespace heddle
