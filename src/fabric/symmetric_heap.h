// Hands out offsets of a heap that every rank has: the same calls give the same offsets everywhere.
#pragma once

#include <cstddef>

namespace heddle {

class SymmetricHeap {
 public:
  static constexpr std::size_t kAlignment = 256;

  explicit SymmetricHeap(std::size_t size_bytes) : size_bytes_(size_bytes) {}

  // The offset of `size_bytes` more bytes. Throws Failure when they are not left, saying how many are.
  std::size_t allocate(std::size_t size_bytes);

  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t used_bytes() const { return used_bytes_; }

 private:
  std::size_t size_bytes_;
  std::size_t used_bytes_ = 0;
};

}  // namespace heddle
