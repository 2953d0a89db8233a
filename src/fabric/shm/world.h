// The memory of a run on shm, as one process has it mapped: the control block and every rank's heap.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/shm/control.h"
#include "fabric/shm/mapping.h"

namespace heddle {

class ShmWorld {
 public:
  // `memory` holds the heaps of `size` ranks, one after the other.
  ShmWorld(Mapping control, Mapping memory, int size);
  // By rank; of the caller, and zeroed.
  ShmWorld(Mapping control, std::vector<std::byte*> heaps, std::size_t heap_bytes)
      : control_(std::move(control)), heaps_(std::move(heaps)), heap_bytes_(heap_bytes) {}

  ShmControl& control() const { return *reinterpret_cast<ShmControl*>(control_.data()); }
  int size() const { return static_cast<int>(heaps_.size()); }
  std::size_t heap_bytes() const { return heap_bytes_; }
  std::byte* heap(int rank) const { return heaps_[static_cast<std::size_t>(rank)]; }

 private:
  Mapping control_;
  std::optional<Mapping> memory_;
  std::vector<std::byte*> heaps_;
  std::size_t heap_bytes_;
};

// A rank's heap, whole pages of it. Throws InvalidArgument where a world of `size` ranks, or the options, make no
// sense; InputError when the heaps' sum is no number of bytes.
std::size_t check_shm_world(int size, const FabricOptions& options);

}  // namespace heddle
