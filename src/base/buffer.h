// Owned memory: on the host page-aligned and zeroed; on a GPU from cudaMalloc and not cleared.
#pragma once

#include <cstddef>

#include "base/device.h"

namespace heddle {

class Buffer {
 public:
  Buffer() = default;
  // Throws Failure, with the requested size, when there is too little memory.
  explicit Buffer(std::size_t size_bytes, Device device = {});
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  Device device_;
};

}  // namespace heddle
