// Host memory that a device reads and writes in stream order: pinned for a GPU.
#pragma once

#include <cstddef>

#include "base/buffer.h"
#include "base/pinned_buffer.h"

namespace heddle {

class HostMemory {
 public:
  HostMemory() = default;
  // Throws Failure when memory is short.
  HostMemory(std::size_t size_bytes, Device device)
      : pinned_(device.kind == DeviceKind::cuda ? PinnedBuffer(size_bytes) : PinnedBuffer()),
        plain_(device.kind == DeviceKind::cuda ? Buffer() : Buffer(size_bytes)) {}

  std::byte* data() { return pinned_.data() != nullptr ? pinned_.data() : plain_.data(); }
  std::size_t size_bytes() const { return pinned_.data() != nullptr ? pinned_.size_bytes() : plain_.size_bytes(); }

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }

 private:
  PinnedBuffer pinned_;
  Buffer plain_;
};

}  // namespace heddle
