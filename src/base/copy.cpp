#include "base/copy.h"

#include <cstring>

#include "base/cuda_runtime.h"

namespace heddle {

void enqueue_copy(Stream& stream, void* destination, const void* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  if constexpr (kHaveCuda) {
    if (stream.device().kind == DeviceKind::cuda) {
      cuda::copy(destination, source, size_bytes, stream.native());
      return;
    }
  }
  stream.enqueue([=](ThreadPool&) { std::memcpy(destination, source, size_bytes); });
}

void enqueue_clear(Stream& stream, void* memory, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  if constexpr (kHaveCuda) {
    if (stream.device().kind == DeviceKind::cuda) {
      cuda::clear(stream.device().index, memory, size_bytes, stream.native());
      return;
    }
  }
  stream.enqueue([=](ThreadPool&) { std::memset(memory, 0, size_bytes); });
}

}  // namespace heddle
