#include "base/pinned_buffer.h"

#include <utility>

#include "base/cuda_runtime.h"
#include "base/device.h"
#include "base/error.h"

namespace heddle {

PinnedBuffer::PinnedBuffer(std::size_t size_bytes) {
  if (size_bytes == 0) return;
  if constexpr (kHaveCuda) {
    Buffer memory(size_bytes);
    cuda::pin(memory.data(), size_bytes);
    memory_ = std::move(memory);
  } else {
    throw InvalidArgument("pinned memory: this build has no CUDA side");
  }
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if constexpr (kHaveCuda)
    if (memory_.data() != nullptr) cuda::unpin(memory_.data());
}

}  // namespace heddle
