#include "step/arena.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/stand_in.h"

namespace heddle {

Arena::Arena(std::size_t capacity_bytes, Device device)
    : buffer_(rounded(capacity_bytes), device), begin_(buffer_.data()), capacity_bytes_(buffer_.size_bytes()) {}

Arena::Arena(Buffer buffer, std::byte* begin, std::size_t capacity_bytes)
    : buffer_(std::move(buffer)), begin_(begin), capacity_bytes_(capacity_bytes) {}

Arena Arena::measuring() {
  return {Buffer(), stand_in_memory(), std::numeric_limits<std::size_t>::max() / 4};
}

void Arena::rewind(std::size_t mark) {
  require(mark <= used_bytes_, "arena: cannot rewind forward, from {} to {}", used_bytes_, mark);
  used_bytes_ = mark;
}

void* Arena::take_bytes(std::size_t size_bytes) {
  const std::size_t size = rounded(size_bytes);
  if (size > capacity_bytes_ - used_bytes_)
    throw_error<Failure>("arena: {} bytes are wanted, {} of {} are free; was the step larger than it was sized for?",
                         size, capacity_bytes_ - used_bytes_, capacity_bytes_);
  void* result = begin_ + used_bytes_;
  used_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return result;
}

Tensor Arena::take(std::int64_t rows, std::int64_t columns, DType dtype) {
  require(rows >= 0 && columns >= 0, "arena: a tensor of [{}, {}]", rows, columns);
  void* data = take_bytes(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * size_of(dtype));
  return {data, rows, columns, columns, dtype};
}

std::size_t Arena::rounded(std::size_t size_bytes) {
  return round_up(size_bytes, kAlignment);
}

}  // namespace heddle
