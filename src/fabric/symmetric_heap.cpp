#include "fabric/symmetric_heap.h"

#include <algorithm>
#include <iterator>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

// Rounded up to the alignment, where the heap's end leaves room for that.
std::size_t SymmetricHeap::taken(std::size_t offset, std::size_t size_bytes) const {
  return std::min(size_bytes_ - offset, round_up(size_bytes, kAlignment));
}

SymmetricHeap::Place SymmetricHeap::allocate(std::size_t size_bytes) {
  std::size_t left = size_bytes_ - end_;
  for (const auto& [offset, size] : holes_) {
    left = std::max(left, size);
    if (size_bytes == 0 || size < size_bytes) continue;
    const std::size_t begin = offset, hole = size, needed = std::min(hole, taken(begin, size_bytes));
    holes_.erase(begin);
    if (needed < hole) holes_[begin + needed] = hole - needed;
    live_[begin] = needed;
    return {begin, size_bytes};
  }
  if (size_bytes > size_bytes_ - end_)
    throw_error<Failure>(
        "the symmetric heap has {} of its {} bytes left, and {} are asked for; make it larger (heap_bytes)", left,
        size_bytes_, size_bytes);
  const std::size_t offset = end_;
  if (size_bytes == 0) return {offset, 0};
  live_[offset] = taken(offset, size_bytes);
  end_ += live_[offset];
  const std::size_t used_before = std::min(std::max(highest_end_, offset) - offset, size_bytes);
  highest_end_ = std::max(highest_end_, end_);
  return {offset, used_before};
}

void SymmetricHeap::release(std::size_t offset, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  const auto found = live_.find(offset);
  require(found != live_.end() && found->second == taken(offset, size_bytes),
          "release: {} bytes at offset {} of the symmetric heap are not what an allocate() gave", size_bytes, offset);
  std::size_t begin = offset, end = offset + found->second;
  live_.erase(found);
  const auto after = holes_.lower_bound(begin);
  if (after != holes_.begin())
    if (const auto before = std::prev(after); before->first + before->second == begin) {
      begin = before->first;
      holes_.erase(before);
    }
  if (after != holes_.end() && after->first == end) {
    end += after->second;
    holes_.erase(after);
  }
  if (end == end_)
    end_ = begin;
  else
    holes_[begin] = end - begin;
}

std::optional<std::size_t> SymmetricHeap::offset_of(const std::byte* begin, const void* place,
                                                    std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(place), first = reinterpret_cast<std::uintptr_t>(begin);
  if (address < first || address - first > end_ || bytes > end_ - (address - first)) return std::nullopt;
  const std::size_t offset = address - first;
  const auto hole = holes_.lower_bound(offset + bytes);  // the first behind
  if (hole == holes_.begin()) return offset;
  const auto before = std::prev(hole);
  return before->first + before->second > offset ? std::nullopt : std::optional(offset);
}

}  // namespace heddle
