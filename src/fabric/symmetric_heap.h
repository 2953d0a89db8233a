// The allocator of the symmetric heap: the same calls give the same offsets on every rank.
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
    std::size_t used_before;  // of its first bytes, which were allocated before and may not be zero
  };
  // Allocates at the lowest free offset. Throws Failure if no free range is large enough, naming the largest.
  Place allocate(std::size_t size_bytes);
  // Frees what allocate(size_bytes) returned at `offset`. Throws InvalidArgument for anything else.
  void release(std::size_t offset, std::size_t size_bytes);

  std::size_t size_bytes() const { return size_bytes_; }
  // Offset of `place` in the heap at `begin`; empty unless all `bytes` there are allocated.
  std::optional<std::size_t> offset_of(const std::byte* begin, const void* place, std::size_t bytes) const;

 private:
  std::size_t taken(std::size_t offset, std::size_t size_bytes) const;

  std::size_t size_bytes_;
  std::size_t end_ = 0;                       // of the last allocation
  std::size_t highest_end_ = 0;               // ever
  std::map<std::size_t, std::size_t> live_;   // size by offset
  std::map<std::size_t, std::size_t> holes_;  // below end_; no two touch
};

}  // namespace heddle
