// The memory of one step's tensors. Tensors are taken front to back and released all at once. A step of the same shape
// gets the same addresses every time, so it can be captured in a graph. Taking a tensor allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/tensor.h"

namespace heddle {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 256;  // widest vector load, and a cache line pair

  // Throws Failure when the device has too little memory.
  explicit Arena(std::size_t capacity_bytes, Device device = {});

  // Releases all tensors. The stream must have finished with them, unless only later work of the same stream uses new
  // ones.
  void reset() { used_bytes_ = 0; }

  // The current position, and the return to it, which releases the tensors taken since. For the scratch of one layer.
  std::size_t mark() const { return used_bytes_; }
  void rewind(std::size_t mark);

  // Contents are unspecified. Throws Failure, with need and capacity, when the arena is full.
  void* take_bytes(std::size_t size_bytes);
  Tensor take(std::int64_t rows, std::int64_t columns, DType dtype);  // contiguous
  template <class T>
  T* take_array(std::size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  // Bytes that `take_bytes(size_bytes)` uses, to compute a capacity.
  static std::size_t rounded(std::size_t size_bytes);

  std::size_t capacity_bytes() const { return buffer_.size_bytes(); }
  std::size_t peak_bytes() const { return peak_bytes_; }  // the maximum in use so far

 private:
  Buffer buffer_;
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace heddle
