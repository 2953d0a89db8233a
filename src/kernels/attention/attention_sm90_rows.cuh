// Rows of q and y on a GPU, whatever their dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/alignment.h"
#include "base/tensor.h"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

// Calls f with a null pointer to the elements' type: one switch for many loads, so that all are under way at once.
template <class F>
__device__ inline void with_element_type(DType dtype, F f) {
  switch (dtype) {
    case DType::bfloat16:
      return f(static_cast<const __nv_bfloat16*>(nullptr));
    case DType::float16:
      return f(static_cast<const __half*>(nullptr));
    default:
      return f(static_cast<const float*>(nullptr));
  }
}

// Two elements, from where two are aligned.
__device__ inline float2 load_pair(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ inline float2 load_pair(const __nv_bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ inline float2 load_pair(const __half* from) {
  return __half22float2(*reinterpret_cast<const __half2*>(from));
}

// Eight elements as eight of type T, rounded, from where eight (of float: four) are aligned.
template <class T, class Element>
__device__ inline uint4 load_eight(const Element* from) {
  if constexpr (std::is_same_v<T, Element>) {
    return *reinterpret_cast<const uint4*>(from);
  } else if constexpr (std::is_same_v<Element, float>) {
    const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
    return {pack<T>(a.x, a.y), pack<T>(a.z, a.w), pack<T>(b.x, b.y), pack<T>(b.z, b.w)};
  } else {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    const auto* pairs = reinterpret_cast<const Element*>(&raw);
    const float2 a = load_pair(pairs), b = load_pair(pairs + 2), c = load_pair(pairs + 4), d = load_pair(pairs + 6);
    return {pack<T>(a.x, a.y), pack<T>(b.x, b.y), pack<T>(c.x, c.y), pack<T>(d.x, d.y)};
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
         is_aligned(rows.data, static_cast<std::size_t>(elements) * size_of(rows.dtype));
}

}  // namespace heddle::sm90
