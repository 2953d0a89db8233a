// Where a kernel stores y = sums + bias, of any dtype and alignment.
#pragma once

#include <cstdint>

#include "base/alignment.h"
#include "base/tensor.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {

struct KernelOutput {
  void* data;
  std::int64_t columns, row_stride;
  DType dtype;
  bool pairs;         // even columns are aligned to two elements
  const float* bias;  // [columns]; null: none

  __device__ float biased(std::int64_t column, float value) const {
    return bias == nullptr ? value : value + bias[column];
  }
  __device__ void store(std::int64_t row, std::int64_t column, float value) const {
    store_element(data, row * row_stride + column, dtype, biased(column, value));
  }
  // To `column`, which exists and is even, and the next, which may not.
  __device__ void store_pair(std::int64_t row, std::int64_t column, float first, float second) const {
    if (!pairs || column + 1 >= columns) {
      store(row, column, first);
      if (column + 1 < columns) store(row, column + 1, second);
      return;
    }
    const std::int64_t at = row * row_stride + column;
    first = biased(column, first);
    second = biased(column + 1, second);
    if (dtype == DType::float32)
      *reinterpret_cast<float2*>(static_cast<float*>(data) + at) = make_float2(first, second);
    else if (dtype == DType::bfloat16)
      *reinterpret_cast<std::uint32_t*>(static_cast<bfloat16*>(data) + at) = sm90::pack<bfloat16>(first, second);
    else
      *reinterpret_cast<std::uint32_t*>(static_cast<float16*>(data) + at) = sm90::pack<float16>(first, second);
  }
};

inline KernelOutput output_of(const Tensor& y, const float* bias) {
  return {.data = y.data,
          .columns = y.columns,
          .row_stride = y.row_stride,
          .dtype = y.dtype,
          .pairs = reinterpret_cast<std::uintptr_t>(y.data) % (2 * size_of(y.dtype)) == 0 && y.row_stride % 2 == 0,
          .bias = bias};
}

}  // namespace heddle
