// Pinned host memory, zeroed: a GPU copies from and to it at full speed, and without the host waiting. Every GPU of the
// process can also access it in place, slowly.
#pragma once

#include <cstddef>

#include "base/buffer.h"

namespace heddle {

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Throws Failure when there is too little memory that can be pinned; InvalidArgument in a build without CUDA.
  explicit PinnedBuffer(std::size_t size_bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept = default;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() { return memory_.data(); }
  const std::byte* data() const { return memory_.data(); }
  std::size_t size_bytes() const { return memory_.size_bytes(); }

 private:
  Buffer memory_;  // in huge pages if possible; pinning these takes a fifth of the time
};

}  // namespace heddle
