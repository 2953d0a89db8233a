// Host memory that a GPU copies from and to at full speed and without the host waiting; every GPU of the process can
// also read and write it in place, slowly. Not cleared.
#pragma once

#include <cstddef>

namespace heddle {

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Throws Failure when there is not that much memory that can be pinned; InvalidArgument in a build without CUDA.
  explicit PinnedBuffer(std::size_t size_bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace heddle
