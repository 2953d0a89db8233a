// The memory of a run on shm, as one process has it mapped: the control block and every rank's heap.
#pragma once

#include <cstddef>
#include <utility>

#include "fabric/fabric.h"
#include "fabric/shm/control.h"
#include "fabric/shm/mapping.h"

namespace heddle {

class ShmWorld {
 public:
  ShmWorld(Mapping control, Mapping heaps, int size)
      : control_(std::move(control)), heaps_(std::move(heaps)), size_(size) {}

  ShmControl& control() const { return *reinterpret_cast<ShmControl*>(control_.data()); }
  int size() const { return size_; }
  std::size_t heap_bytes() const { return heaps_.size_bytes() / static_cast<std::size_t>(size_); }
  std::byte* heap(int rank) const { return heaps_.data() + static_cast<std::size_t>(rank) * heap_bytes(); }

 private:
  Mapping control_;
  Mapping heaps_;
  int size_;
};

// A rank's heap, whole pages of it. Throws InvalidArgument where a world of `size` ranks, or the options, make no
// sense; InputError when the heaps' sum is no number of bytes.
std::size_t check_shm_world(int size, const FabricOptions& options);

}  // namespace heddle
