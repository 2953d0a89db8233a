// The memory of one step's tensors: handed out front to back, all given back at once, at the same addresses in every
// step of the same shape, so that a step can be captured in a graph. Handing out allocates nothing.
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

  // Throws Failure when the device has not that much memory.
  explicit Arena(std::size_t capacity_bytes, Device device = {});

  // Forgets all tensors. The stream must be done with them, or only later work of the same stream may use new ones.
  void reset() { used_bytes_ = 0; }

  // The position, and going back to it: tensors taken since are forgotten. For scratch of one layer.
  std::size_t mark() const { return used_bytes_; }
  void rewind(std::size_t mark);

  // Contents are unspecified. Throws Failure, with need and capacity, when the arena is full.
  void* take_bytes(std::size_t size_bytes);
  Tensor take(std::int64_t rows, std::int64_t columns, DType dtype);  // contiguous
  template <class T>
  T* take_array(std::size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  // Bytes that `take_bytes(size_bytes)` uses, for whoever computes a capacity.
  static std::size_t rounded(std::size_t size_bytes);

  std::size_t capacity_bytes() const { return buffer_.size_bytes(); }
  std::size_t peak_bytes() const { return peak_bytes_; }  // most ever in use

 private:
  Buffer buffer_;
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace heddle
