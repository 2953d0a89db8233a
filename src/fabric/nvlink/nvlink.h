// The fabric between the GPUs of a node: one-sided memory over NVLink. Free of CUDA's headers; what is declared here is
// defined only in builds with CUDA, and used behind `if constexpr (kHaveCuda)`.
//
// A rank is a GPU, whether the ranks are threads of one process or a process each. Their hosts come together over
// another fabric in host memory (shm), which also carries the news of a failure to everybody.
//
// How the contract of fabric.h is kept. `put` and `get` are copies by a copy engine or a kernel (transfer_path.h) in
// stream order, so each is complete at its peer when the stream's next operation begins. `signal` is a kernel that
// stores with release at system scope: what the stream did before happens before that kernel, and the release is
// cumulative. (A cuStreamWriteValue64 would order as much, but takes no address that NCCL or IPC mapped on every
// driver.) `wait` is a kernel of one thread that polls with acquire: a cuStreamWaitValue64 has no deadline and leaves
// no record. `wait_next` is the same with its count in the semaphore. `fence` is a kernel with a fence at system scope.
// All but `signal` and `wait`, which name a value, may be captured in a graph, and its replays keep counting where the
// last ended: a semaphore's counts and a barrier's epochs live in the GPU's memory.
//
// Teams of any shape do not disturb each other's barriers, on one stream or on several; those of one team go into one
// stream, or into several that events order.
//
// Waits give up after the deadline, all waits of the rank with the first; synchronize() then tells every other rank,
// whose waits end too, and throws.
//
// Ranks may share a GPU, as threads of one process (cuda_ipc). While a kernel waits for a rank, that rank's host must
// do nothing that waits for the GPU to be idle: load a kernel (CUDA_MODULE_LOADING=EAGER loads all at once), allocate
// or free memory, instantiate a graph. Fabric::meet() says when no kernel waits. Blocks that wait for peers must fit
// into DeviceShare::sms. Each stream needs a hardware queue (CUDA_DEVICE_MAX_CONNECTIONS, which NvlinkThreads sets to
// 32).
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
  nccl_windows,  // NCCL's symmetric windows; needs the NCCL that this was built with, and one GPU a rank
  cuda_ipc       // plain CUDA: IPC handles between processes, peer access between threads; ranks may share a GPU
};
std::string_view name_of(PeerMemoryKind kind);  // "nccl_windows", "cuda_ipc"

struct NvlinkOptions {
  FabricOptions fabric;
  PeerMemoryKind memory = PeerMemoryKind::nccl_windows;
  // A put or get of at least this size uses a copy engine.
  std::size_t copy_engine_bytes = std::size_t{512} << 10;
  // The longest that synchronize() waits for a stream once NCCL's collectives are open (nccl_collectives.h), as those
  // have no deadline.
  std::chrono::nanoseconds vendor_deadline{std::chrono::seconds(60)};
};

// Bytes of the host fabric's heap that opening takes, for a world of that size.
std::size_t nvlink_host_heap_bytes(int world_size);

// Collective over the ranks of `host`, a fabric with peer addresses in host memory that nothing else uses. The rank's
// memory is on GPU `device`, which becomes the calling thread's current one. Throws InvalidArgument when the ranks'
// heap_bytes or memory differ (the other options may); Failure when a GPU or its NCCL will not do, naming it: no such
// device, two GPUs without peer access, another NCCL, an address that does not reach its peer; Timeout naming a rank
// that does not come.
std::unique_ptr<Fabric> open_nvlink(std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options = {});

}  // namespace heddle
