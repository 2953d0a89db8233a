// Operands in a device's memory, which is allocated once: allocating may wait for kernels that wait for other ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/stream.h"

namespace heddle {

// Numbers as a dtype holds them.
inline std::vector<std::byte> encoded(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bfloat16 brain = to_bfloat16(values[i]);
    const float16 half = to_float16(values[i]);
    const void* const one = dtype == DType::float32    ? static_cast<const void*>(&values[i])
                            : dtype == DType::bfloat16 ? static_cast<const void*>(&brain)
                                                       : &half;
    std::memcpy(bytes.data() + i * size_of(dtype), one, size_of(dtype));
  }
  return bytes;
}

inline std::vector<float> decoded(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* const one = bytes.data() + i * size_of(dtype);
    bfloat16 brain{};
    float16 half{};
    if (dtype == DType::float32) std::memcpy(&values[i], one, sizeof(float));
    if (dtype == DType::bfloat16) std::memcpy(&brain, one, sizeof brain), values[i] = to_float(brain);
    if (dtype == DType::float16) std::memcpy(&half, one, sizeof half), values[i] = to_float(half);
  }
  return values;
}

class DeviceRoom {
 public:
  DeviceRoom(std::size_t bytes, Device device) : own_(bytes, device), memory_(own_.data(), own_.size_bytes()) {}
  explicit DeviceRoom(std::span<std::byte> memory) : memory_(memory) {}  // of somebody else

  void clear() { used_ = 0; }
  bool fits(std::size_t bytes) const { return rounded(bytes) <= memory_.size() - used_; }

  void* put(Stream& stream, const std::vector<std::byte>& bytes) {
    void* const place = take(bytes.size());
    if (!bytes.empty()) enqueue_copy(stream, place, bytes.data(), bytes.size());
    stream.synchronize();  // `bytes` may go
    return place;
  }
  template <class T>
  const T* put_array(Stream& stream, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return static_cast<const T*>(put(stream, bytes));
  }
  // Memory of which every element is a NaN.
  void* put_nans(Stream& stream, std::size_t bytes) {
    return put(stream, std::vector<std::byte>(bytes, std::byte{0xff}));
  }

  void* take(std::size_t bytes) {
    require(fits(bytes), "the course's memory of {} bytes is too small", memory_.size());
    return memory_.data() + std::exchange(used_, used_ + rounded(bytes));
  }

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  Buffer own_;
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

}  // namespace heddle
