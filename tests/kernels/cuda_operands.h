// Operands on a GPU for tests of operators; tests that use them skip, saying so, where there is none.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <span>

#include "base/buffer.h"
#include "base/cuda_runtime.h"
#include "operands.h"

namespace heddle {

inline constexpr Device kGpu{DeviceKind::cuda, 0};

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no GPU here";
  }
};

// Calls enqueue(stream) and waits.
template <class F>
void on_gpu(F enqueue) {
  Stream stream(kGpu);
  enqueue(stream);
  stream.synchronize();
}

// An array in a GPU's memory, `misalignment` elements past a 256-byte boundary.
template <class T>
class GpuArray {
 public:
  explicit GpuArray(std::span<const T> values, std::size_t misalignment = 0)
      : count_(values.size()), offset_(misalignment), memory_((count_ + offset_ + 1) * sizeof(T), kGpu) {
    set(values);
  }
  explicit GpuArray(const std::vector<T>& values, std::size_t misalignment = 0)
      : GpuArray(std::span<const T>(values), misalignment) {}

  T* data() { return reinterpret_cast<T*>(memory_.data()) + offset_; }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data()) + offset_; }
  std::size_t count() const { return count_; }
  void set(std::span<const T> values) {
    on_gpu([&](Stream& stream) { cuda::copy(data(), values.data(), values.size_bytes(), stream.native()); });
  }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    on_gpu([&](Stream& stream) { cuda::copy(result.data(), data(), count_ * sizeof(T), stream.native()); });
    return result;
  }

 private:
  std::size_t count_, offset_;
  Buffer memory_;
};

// Numbers of any dtype as bytes: what a GpuArray<std::byte> holds. NaN where there is none.
inline std::vector<std::byte> as_bytes(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  convert(values.data(), DType::float32, bytes.data(), dtype, values.size());
  return bytes;
}
inline std::vector<float> as_floats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  convert(bytes.data(), dtype, values.data(), DType::float32, values.size());
  return values;
}
inline std::vector<float> rounded(const std::vector<float>& values, DType dtype) {
  return as_floats(as_bytes(values, dtype), dtype);
}
inline float rounded(float value, DType dtype) {
  return rounded(std::vector<float>{value}, dtype)[0];
}
// The same rows with every number rounded to `dtype`.
inline Rows rounded(const Rows& rows, DType dtype) {
  Rows result = rows;
  for (std::int64_t r = 0; r < rows.rows(); ++r)
    for (std::int64_t c = 0; c < rows.columns(); ++c) result.row(r)[c] = rounded(rows.row(r)[c], dtype);
  return result;
}

// Rows on a GPU, `gap` elements apart, from host rows, NaN in between.
class GpuRows {
 public:
  struct Placement {
    std::int64_t gap = 0;
    std::size_t misalignment = 0;  // elements
  };

  GpuRows(const Rows& rows, DType dtype, Placement placement)
      : dtype_(dtype),
        tensor_{nullptr, rows.rows(), rows.columns(), rows.columns() + placement.gap, dtype},
        bytes_(as_bytes(image(rows, tensor_), dtype), placement.misalignment * size_of(dtype)) {
    tensor_.data = bytes_.data();
  }
  GpuRows(const Rows& rows, DType dtype) : GpuRows(rows, dtype, Placement{}) {}
  GpuRows(std::int64_t rows, std::int64_t columns, DType dtype, Placement placement)
      : GpuRows(Rows(rows, columns), dtype, placement) {}
  GpuRows(std::int64_t rows, std::int64_t columns, DType dtype) : GpuRows(rows, columns, dtype, Placement{}) {}
  GpuRows(const GpuRows&) = delete;
  GpuRows& operator=(const GpuRows&) = delete;

  operator Tensor() const { return tensor_; }  // NOLINT(google-explicit-constructor): stands for its tensor

  // With the gap, so that gaps_untouched() of the result tells whether the GPU wrote there.
  Rows rows() const {
    const std::vector<float> values = as_floats(bytes_.values(), dtype_);
    Rows result(tensor_.rows, tensor_.columns, tensor_.row_stride - tensor_.columns);
    for (std::int64_t r = 0; r < tensor_.rows; ++r)
      std::copy_n(values.data() + r * tensor_.row_stride, tensor_.row_stride, result.row(r));
    return result;
  }

 private:
  static std::vector<float> image(const Rows& rows, const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.row_stride), kPoison);
    for (std::int64_t r = 0; r < tensor.rows; ++r)
      std::copy_n(rows.row(r), tensor.columns, values.data() + r * tensor.row_stride);
    return values;
  }

  DType dtype_;
  Tensor tensor_;
  GpuArray<std::byte> bytes_;
};

// Aligned rows, which go by packs, and such as do not.
inline constexpr GpuRows::Placement kPlacements[] = {{}, {.gap = 16}, {.gap = 3}, {.gap = 16, .misalignment = 1}};

}  // namespace heddle
