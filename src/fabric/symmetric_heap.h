// Hands out offsets of a heap that every rank has: the same calls give the same offsets everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace heddle {

class SymmetricHeap {
 public:
  static constexpr std::size_t kAlignment = 256;

  explicit SymmetricHeap(std::size_t size_bytes) : size_bytes_(size_bytes) {}

  struct Place {
    std::size_t offset;
    std::size_t used_before;  // so many bytes from there on have been handed out before, and may not be zero
  };
  // `size_bytes` more bytes, at the lowest offset that is free. Throws Failure when they are not left in one piece,
  // saying how many are.
  Place allocate(std::size_t size_bytes);
  // Takes back what allocate(size_bytes) gave at `offset`. Throws InvalidArgument for anything else.
  void release(std::size_t offset, std::size_t size_bytes);

  std::size_t size_bytes() const { return size_bytes_; }
  // Of `bytes` at `place`, the heap being at `begin`; nothing, unless all of them lie in what is handed out.
  std::optional<std::size_t> offset_of(const std::byte* begin, const void* place, std::size_t bytes) const;

 private:
  std::size_t taken(std::size_t offset, std::size_t size_bytes) const;

  std::size_t size_bytes_;
  std::size_t end_ = 0;                       // of what is handed out
  std::size_t highest_end_ = 0;               // ever
  std::map<std::size_t, std::size_t> live_;   // size by offset
  std::map<std::size_t, std::size_t> holes_;  // below end_; no two touch
};

}  // namespace heddle
