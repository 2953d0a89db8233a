#include "step/arena.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

Arena::Arena(std::size_t capacity_bytes, Device device) : buffer_(rounded(capacity_bytes), device) {}

void Arena::rewind(std::size_t mark) {
  require(mark <= used_bytes_, "arena: cannot rewind forward, from {} to {}", used_bytes_, mark);
  used_bytes_ = mark;
}

void* Arena::take_bytes(std::size_t size_bytes) {
  const std::size_t size = rounded(size_bytes);
  if (size > buffer_.size_bytes() - used_bytes_)
    throw_error<Failure>("arena: {} bytes are wanted, {} of {} are free; was the step larger than it was sized for?",
                         size, buffer_.size_bytes() - used_bytes_, buffer_.size_bytes());
  void* result = buffer_.data() + used_bytes_;
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
