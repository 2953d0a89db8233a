#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cuda_runtime.h"
#include "base/error.h"

namespace heddle {

Buffer::Buffer(std::size_t size_bytes, Device device) : size_bytes_(size_bytes), device_(device) {
  if (size_bytes == 0) return;
  if (device.kind == DeviceKind::cpu) {
    void* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_error<Failure>("cannot allocate {} bytes: {}", size_bytes, std::strerror(errno));
    ::madvise(memory, size_bytes, MADV_HUGEPAGE);  // best effort: the kernel may not support huge pages
    data_ = static_cast<std::byte*>(memory);
  } else if constexpr (kHaveCuda) {
    data_ = static_cast<std::byte*>(cuda::allocate(device.index, size_bytes));
  } else {
    throw_error<InvalidArgument>("memory on {}: this build has no CUDA side", name_of(device));
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      device_(other.device_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(device_, other.device_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (device_.kind == DeviceKind::cpu)
    ::munmap(data_, size_bytes_);
  else if constexpr (kHaveCuda)
    cuda::release(device_.index, data_);
}

}  // namespace heddle
