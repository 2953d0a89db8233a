// Conversions between float32 and 16-bit elements. They round to nearest even, as base/dtype.h does; a NaN stays a NaN.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"

namespace heddle::sm90 {

// The name of a 16-bit element type in PTX, for the "C" constraint of inline assembly.
template <class T>
struct PtxType;
template <>
struct PtxType<bfloat16> {
  static constexpr char name[] = "bf16";
};
template <>
struct PtxType<float16> {
  static constexpr char name[] = "f16";
};

// The element of type T in the lower half of a register.
template <class T>
__device__ inline float low_element(std::uint32_t word) {
  if constexpr (std::is_same_v<T, bfloat16>) return __uint_as_float(word << 16);
  float value;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(value) : "r"(word));
  return value;
}

// The element in the upper half of a register.
template <class T>
__device__ inline float high_element(std::uint32_t word) {
  if constexpr (std::is_same_v<T, bfloat16>) return __uint_as_float(word & 0xffff0000u);
  float value;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(word));
  return value;
}

// Two numbers in one register, the first in the lower half.
template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.%3x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low), "C"(PtxType<T>::name));
  return word;
}

template <class T>
__device__ inline float widened(T element) {
  if constexpr (std::is_same_v<T, float>)
    return element;
  else
    return low_element<T>(element.bits);
}

template <class T>
__device__ inline T rounded(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return {static_cast<std::uint16_t>(pack<T>(value, 0))};
}

}  // namespace heddle::sm90
