// NCCL's collectives on the GPUs of a team: for sizes where they are fastest, and as the baseline of benchmarks. Free
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
// every rank of the team in the same order. Counts are in elements of `dtype`; NCCL chooses the order and precision of
// sums. Buffers may be any memory of the device; NCCL has faster symmetric kernels where every rank's buffers come from
// allocate_window. The functions have no deadline of their own, but the fabric's synchronize() has (nvlink.h).
class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;  // collective over the team, unless the fabric has failed
  VendorCollectives(const VendorCollectives&) = delete;
  VendorCollectives& operator=(const VendorCollectives&) = delete;

  virtual int rank() const = 0;  // in the team
  virtual int size() const = 0;

  // Collective over the team. A registered symmetric window of `size_bytes`, zeroed; lives as long as this object.
  // Throws Failure when NCCL gives no window.
  virtual std::byte* allocate_window(std::size_t size_bytes) = 0;

  // Collective over the team. Registers the fabric's symmetric heap as an NCCL window, so that NCCL may use its
  // symmetric kernels for buffers there. Throws Failure when NCCL gives no window; InvalidArgument unless NCCL
  // allocated the heap.
  virtual void register_heap() = 0;

  // In place where destination == source.
  virtual void all_reduce(Stream& stream, void* destination, const void* source, std::size_t count, DType dtype) = 0;
  virtual void broadcast(Stream& stream, int root, void* destination, const void* source, std::size_t count,
                         DType dtype) = 0;
  // destination has size() pieces of `count_each`; in place, source is piece rank() of it.
  virtual void all_gather(Stream& stream, void* destination, const void* source, std::size_t count_each,
                          DType dtype) = 0;
  // source has size() pieces of `count_each`; in place, destination is piece rank() of it.
  virtual void reduce_scatter(Stream& stream, void* destination, const void* source, std::size_t count_each,
                              DType dtype) = 0;
  // Both have size() pieces of `count_each`; not in place. A group of sends and receives.
  virtual void all_to_all(Stream& stream, void* destination, const void* source, std::size_t count_each,
                          DType dtype) = 0;

 protected:
  VendorCollectives() = default;
};

// Whether NCCL is available in the version of this build; loads it.
bool nccl_available();

// Collective over `team`, ranks of the fabric's world that include the caller. The communicator ends before the fabric.
// Throws InvalidArgument unless the fabric has Capability::vendor_collectives. Defined only in builds with CUDA.
std::unique_ptr<VendorCollectives> open_nccl(Fabric& fabric, std::span<const int> team);

}  // namespace heddle
