// NCCL's collectives on the GPUs of a team: for sizes where they are fastest, and as the baseline of the benches. Free
// of NCCL's headers; NCCL is loaded when the first team is opened.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "base/stream.h"
#include "fabric/fabric.h"

namespace heddle {

// The communicator of a team. Its functions enqueue and return, may be captured in a CUDA graph, and are called by
// every rank of the team, in the same order. Counts are in elements of `dtype`; sums are NCCL's, in its own order and
// precision. A buffer may be any memory of the device: NCCL takes its faster symmetric kernels where every rank's
// buffers come from allocate_window, and its ordinary ones else. They have no deadline of their own; the fabric's
// synchronize() has (see nvlink.h).
class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;  // collective over the team, unless the fabric has failed
  VendorCollectives(const VendorCollectives&) = delete;
  VendorCollectives& operator=(const VendorCollectives&) = delete;

  virtual int rank() const = 0;  // in the team
  virtual int size() const = 0;

  // Collective over the team. `size_bytes` of a registered symmetric window, zeroed; lives as long as this. Throws
  // Failure when NCCL gives no window.
  virtual std::byte* allocate_window(std::size_t size_bytes) = 0;

  // Collective over the team. Makes the fabric's symmetric heap a window of NCCL's, too, so that it may take its faster
  // ways for buffers there. Throws Failure when NCCL gives no window; InvalidArgument unless the heap is NCCL's memory.
  virtual void register_heap() = 0;

  // In place where destination == source.
  virtual void all_reduce(Stream& stream, void* destination, const void* source, std::size_t count, DType dtype) = 0;
  virtual void broadcast(Stream& stream, int root, void* destination, const void* source, std::size_t count,
                         DType dtype) = 0;
  // destination holds size() pieces of `count_each`, the rank'th of them being source where in place.
  virtual void all_gather(Stream& stream, void* destination, const void* source, std::size_t count_each,
                          DType dtype) = 0;
  // source holds size() pieces of `count_each`, the rank'th of them being destination where in place.
  virtual void reduce_scatter(Stream& stream, void* destination, const void* source, std::size_t count_each,
                              DType dtype) = 0;
  // Both hold size() pieces of `count_each`; not in place. A group of sends and receives.
  virtual void all_to_all(Stream& stream, void* destination, const void* source, std::size_t count_each,
                          DType dtype) = 0;

 protected:
  VendorCollectives() = default;
};

// Whether NCCL is here, in the version that this was built with; loads it.
bool nccl_available();

// Collective over `team`, ranks of the fabric's world of whom the caller is one. It ends before the fabric
// does. Throws InvalidArgument unless the fabric has Capability::vendor_collectives. Defined only in builds with CUDA;
// used behind `if constexpr (kHaveCuda)`.
std::unique_ptr<VendorCollectives> open_nccl(Fabric& fabric, std::span<const int> team);

}  // namespace heddle
