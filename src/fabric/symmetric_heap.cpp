#include "fabric/symmetric_heap.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

std::size_t SymmetricHeap::allocate(std::size_t size_bytes) {
  const std::size_t left = size_bytes_ - used_bytes_;
  if (size_bytes > left)
    throw_error<Failure>(
        "the symmetric heap has {} of its {} bytes left, and {} are asked for; make it larger (heap_bytes)", left,
        size_bytes_, size_bytes);
  const std::size_t offset = used_bytes_;
  used_bytes_ += std::min(left, round_up(size_bytes, kAlignment));
  return offset;
}

}  // namespace heddle
