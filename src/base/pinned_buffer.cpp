#include "base/pinned_buffer.h"

#include <utility>

#include "base/cuda_runtime.h"
#include "base/device.h"
#include "base/error.h"

namespace heddle {

PinnedBuffer::PinnedBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  if constexpr (kHaveCuda)
    data_ = static_cast<std::byte*>(cuda::allocate_pinned(size_bytes));
  else
    throw InvalidArgument("pinned memory: this build has no CUDA side");
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if constexpr (kHaveCuda)
    if (data_ != nullptr) cuda::release_pinned(data_);
}

}  // namespace heddle
