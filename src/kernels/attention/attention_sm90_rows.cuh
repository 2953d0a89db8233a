// Access to rows of q and y on a GPU, for any dtype.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "base/tensor.h"
#include "kernels/sm90/convert_sm90.cuh"

namespace heddle::sm90 {

// Loads and stores two elements, aligned to two.
template <class T>
__device__ inline float2 load_pair(const T* from) {
  if constexpr (std::is_same_v<T, float>) return *reinterpret_cast<const float2*>(from);
  const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(from);
  return {low_element<T>(word), high_element<T>(word)};
}
template <class T>
__device__ inline void store_pair(T* to, float first, float second) {
  if constexpr (std::is_same_v<T, float>)
    *reinterpret_cast<float2*>(to) = {first, second};
  else
    *reinterpret_cast<std::uint32_t*>(to) = pack<T>(first, second);
}

// Loads eight elements, rounded to T, from an address aligned to eight (float: four).
template <class T, class Element>
__device__ inline uint4 load_eight(const Element* from) {
  if constexpr (std::is_same_v<T, Element>) {
    return *reinterpret_cast<const uint4*>(from);
  } else if constexpr (std::is_same_v<Element, float>) {
    const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
    return {pack<T>(a.x, a.y), pack<T>(a.z, a.w), pack<T>(b.x, b.y), pack<T>(b.z, b.w)};
  } else {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    const auto converted = [](std::uint32_t word) {
      return pack<T>(low_element<Element>(word), high_element<Element>(word));
    };
    return {converted(raw.x), converted(raw.y), converted(raw.z), converted(raw.w)};
  }
}

// Stores elements i to i + 3, i a multiple of 4, of data that is aligned to four elements.
__device__ inline void store_four(void* data, std::int64_t i, DType dtype, float4 v) {
  with_element(dtype, [&]<class T>() {
    T* const to = static_cast<T*>(data) + i;
    if constexpr (std::is_same_v<T, float>)
      *reinterpret_cast<float4*>(to) = v;
    else
      *reinterpret_cast<uint2*>(to) = {pack<T>(v.x, v.y), pack<T>(v.z, v.w)};
  });
}

// Whether rows begin at, and have strides of, whole groups of `elements`.
inline bool takes_groups(const Tensor& rows, std::size_t elements) {
  return rows_are_aligned(rows, elements * size_of(rows.dtype));
}

}  // namespace heddle::sm90
