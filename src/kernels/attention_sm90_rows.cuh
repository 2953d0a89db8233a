// Rows of q and y on a GPU, whatever their dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/tensor.h"

namespace heddle::sm90 {

__device__ inline float load_element(const void* data, std::int64_t i, DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::float16:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

// Elements i and i + 1, i even.
__device__ inline float2 load_pair(const void* data, std::int64_t i, DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return __bfloat1622float2(static_cast<const __nv_bfloat162*>(data)[i / 2]);
    case DType::float16:
      return __half22float2(static_cast<const __half2*>(data)[i / 2]);
    default:
      return static_cast<const float2*>(data)[i / 2];
  }
}

// Rounded to nearest, ties to even.
__device__ inline void store_element(void* data, std::int64_t i, DType dtype, float value) {
  switch (dtype) {
    case DType::bfloat16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      break;
    case DType::float16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      break;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

// Elements i and i + 1, i even, of data that is aligned to two elements.
__device__ inline void store_pair(void* data, std::int64_t i, DType dtype, float first, float second) {
  switch (dtype) {
    case DType::bfloat16:
      static_cast<__nv_bfloat162*>(data)[i / 2] = __floats2bfloat162_rn(first, second);
      break;
    case DType::float16:
      static_cast<__half2*>(data)[i / 2] = __floats2half2_rn(first, second);
      break;
    default:
      static_cast<float2*>(data)[i / 2] = make_float2(first, second);
  }
}

// Elements i to i + 3, i a multiple of 4, of data that is aligned to four elements.
__device__ inline void store_four(void* data, std::int64_t i, DType dtype, float4 v) {
  if (dtype == DType::float32) {
    static_cast<float4*>(data)[i / 4] = v;
    return;
  }
  uint2 packed;
  if (dtype == DType::bfloat16) {
    reinterpret_cast<__nv_bfloat162&>(packed.x) = __floats2bfloat162_rn(v.x, v.y);
    reinterpret_cast<__nv_bfloat162&>(packed.y) = __floats2bfloat162_rn(v.z, v.w);
  } else {
    reinterpret_cast<__half2&>(packed.x) = __floats2half2_rn(v.x, v.y);
    reinterpret_cast<__half2&>(packed.y) = __floats2half2_rn(v.z, v.w);
  }
  static_cast<uint2*>(data)[i / 4] = packed;
}

// Rows that begin and go on in whole groups of `elements`.
inline bool rows_aligned_to(const Tensor& rows, int elements) {
  return rows.row_stride % elements == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % (static_cast<std::size_t>(elements) * size_of(rows.dtype)) == 0;
}

}  // namespace heddle::sm90
