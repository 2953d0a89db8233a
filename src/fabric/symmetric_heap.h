// Hands out offsets of a heap that every rank has: the same calls give the same offsets everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace heddle {

class SymmetricHeap {
 public:
  static constexpr std::size_t kAlignment = 256;

  explicit SymmetricHeap(std::size_t size_bytes) : size_bytes_(size_bytes) {}

  // The offset of `size_bytes` more bytes. Throws Failure when they are not left, saying how many are.
  std::size_t allocate(std::size_t size_bytes);

  std::size_t size_bytes() const { return size_bytes_; }
  // Of `bytes` at `place`, the heap being at `begin`; nothing, unless all of them lie in what has been handed out.
  std::optional<std::size_t> offset_of(const std::byte* begin, const void* place, std::size_t bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(place), first = reinterpret_cast<std::uintptr_t>(begin);
    if (address < first || address - first > used_bytes_ || bytes > used_bytes_ - (address - first))
      return std::nullopt;
    return address - first;
  }

 private:
  std::size_t size_bytes_;
  std::size_t used_bytes_ = 0;
};

}  // namespace heddle
