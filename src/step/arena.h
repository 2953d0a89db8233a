// The memory of one step's tensors, taken front to back. A step of the same shape gets the same addresses every time, so
// it can be captured in a graph. Taking a tensor allocates nothing.
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

  // For a dry run: as much as anybody takes, and no memory behind it (base/stand_in.h). peak_bytes() is then what a step
  // takes.
  static Arena measuring();

  // The current position, and the return to it, which releases the tensors taken since: a step's, or the scratch of one
  // layer. The stream must have finished with them, unless only later work of the same stream uses new ones.
  std::size_t mark() const { return used_bytes_; }
  void rewind(std::size_t mark);

  // Contents are unspecified. Throws Failure, with need and capacity, when the arena is full.
  void* take_bytes(std::size_t size_bytes);
  Tensor take(std::int64_t rows, std::int64_t columns, DType dtype);  // contiguous

  // Bytes that `take_bytes(size_bytes)` uses.
  static std::size_t rounded(std::size_t size_bytes);

  std::size_t capacity_bytes() const { return capacity_bytes_; }
  std::size_t peak_bytes() const { return peak_bytes_; }  // the maximum in use so far

 private:
  Arena(Buffer buffer, std::byte* begin, std::size_t capacity_bytes);

  Buffer buffer_;  // empty where it measures
  std::byte* begin_;
  std::size_t capacity_bytes_;
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace heddle
